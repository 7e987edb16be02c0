// Package conversionhook is the command that converts for a real cluster what apiserver-lite converts by itself: a conversion webhook that
// goes by the rules in definitions' annotations. It reads the definitions from files, and knows no cluster.
//
// Goroutines: those of net/http, and two that have files read again when they change. All end before the command does. Locks: none;
// what was read is replaced as a whole.
package conversionhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/apiserver-lite/apiserver-lite/internal/exit"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
)

const help = `Serves the rules of conversion that definitions have in their annotation ` + "`apiserver-lite/conversion`" + ` to a cluster that doesn't know them.
Name it in the definitions' spec.conversion.webhook, with the path /convert and conversionReviewVersions [v1]. Files that change are read again.`

// command is what the flags say.
type command struct {
	definitions []string
	listen      string
	cert, key   string
}

// Command returns the command. It prints where it listens, and runs until its context ends.
func Command(stdout, stderr io.Writer) *cobra.Command {
	var c command
	cmd := &cobra.Command{Use: "conversion-webhook --definition FILE --tls-cert-file FILE --tls-private-key-file FILE", Short: "Serve the rules of definitions as a conversion webhook", Long: help}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringArrayVar(&c.definitions, "definition", nil, "file of CustomResourceDefinitions as YAML or JSON; may be given several times")
	set.StringVar(&c.listen, "listen", ":9443", "address and port to listen on")
	set.StringVar(&c.cert, "tls-cert-file", "", "file of the certificate, with those that lead to its authority")
	set.StringVar(&c.key, "tls-private-key-file", "", "file of the certificate's key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.validate(args); err != nil {
			return exit.With(exit.Usage, err)
		}
		return c.run(cmd.Context(), stdout, stderr)
	}
	return cmd
}

func (c *command) validate(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q: files are named by --definition", args[0])
	case len(c.definitions) == 0:
		return errors.New("--definition names no file")
	case c.cert == "" || c.key == "":
		return errors.New("--tls-cert-file and --tls-private-key-file are needed: clusters call webhooks over HTTPS only")
	}
	return nil
}

// Bounds of a request's time. kube-apiserver waits 30 s for an answer.
const (
	readTimeout  = 30 * time.Second
	writeTimeout = time.Minute
	idleTimeout  = 2 * time.Minute
	stopTimeout  = 5 * time.Second // for requests that are under way at the end
)

func (c *command) run(ctx context.Context, stdout, stderr io.Writer) error {
	h := newHandler()
	var shown atomic.Pointer[tls.Certificate]
	files := []reload.Files{
		{Paths: c.definitions, Read: func(context.Context) error { return h.read(c.definitions) }},
		{Paths: []string{c.cert, c.key}, Read: func(context.Context) error {
			pair, err := tls.LoadX509KeyPair(c.cert, c.key)
			if err == nil {
				shown.Store(&pair)
			}
			return err
		}},
	}
	told := log.New(stderr, "apiserver-lite: ", 0)
	for i := range files {
		files[i].Used, _ = reload.SumOf(files[i].Paths...)
		if err := files[i].Read(ctx); err != nil {
			return err
		}
		files[i].Refused = func(err error) { told.Printf("what was read before still counts: %v", err) }
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: h, ErrorLog: told,
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Load(), nil },
		},
	}
	fmt.Fprintf(stdout, "listening on https://%s%s\n", listener.Addr(), path)
	return serve(ctx, server, listener, files)
}

// serve serves until ctx ends, or until nothing can be served.
func serve(ctx context.Context, server *http.Server, listener net.Listener, files []reload.Files) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, f := range files {
		all.Go(func() { f.Watch(ctx) })
	}
	failed := make(chan error, 1) // capacity 1: the server may fail when nobody waits any more
	all.Go(func() { failed <- server.ServeTLS(listener, "", "") })
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last, end := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer end()
	if err := server.Shutdown(last); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

// readFile reads a file of at most maxFile bytes.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return text, err
}
