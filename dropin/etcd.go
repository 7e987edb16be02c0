package dropin

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"
)

// Etcd is the name by which this program takes etcd's flags.
const Etcd = "etcd"

// EtcdOptions are what the flags of etcd ask for.
type EtcdOptions struct {
	Listen []string // host:port of each client URL
	Say    string   // print this, and exit: help, or the version; "" unless asked for
}

// listenClientURLs is the only flag that has a meaning.
const listenClientURLs = "listen-client-urls"

// defaultClientURL is where etcd listens without a flag.
const defaultClientURL = "http://localhost:2379"

// upstreamEtcd are the flags of etcd 3.7.3, a line each: the name, and what its value is. They're a list because etcd's package that
// has them would bring all of etcd's servers along.
//
//go:embed etcd-flags.txt
var upstreamEtcd string

func addEtcdFlags(set *flag.FlagSet) {
	for line := range strings.Lines(upstreamEtcd) {
		switch name, kind, _ := strings.Cut(strings.TrimSpace(line), " "); kind {
		case "bool":
			set.Bool(name, false, "")
		case "number":
			set.Int64(name, 0, "")
		case "duration":
			set.Duration(name, 0, "")
		default:
			set.String(name, "", "")
		}
	}
}

// ParseEtcd reads the arguments of etcd. They all belong to etcd's list, and only those that say where clients connect have an effect.
func ParseEtcd(args []string) (*EtcdOptions, error) {
	o := &EtcdOptions{}
	set := flag.NewFlagSet(Etcd, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	addEtcdFlags(set)
	asked := set.Bool("version", false, "print the version and exit")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		var b strings.Builder
		b.WriteString("Stands in for etcd beside kube-apiserver: answers /health, and stores nothing.\n\nUsage:\n  " + Etcd + " [flags]\n\nFlags:\n\n")
		set.VisitAll(func(f *flag.Flag) { fmt.Fprintf(&b, "  --%s\n", f.Name) })
		o.Say = b.String()
		return o, nil
	} else if err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: there are flags only", set.Arg(0))
	}
	if *asked {
		o.Say = "etcd Version: " + version.Version + "\n"
		return o, nil
	}
	clients := defaultClientURL
	set.Visit(func(f *flag.Flag) {
		if f.Name == listenClientURLs {
			clients = f.Value.String()
		}
	})
	for s := range strings.SplitSeq(clients, ",") {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" {
			return nil, fmt.Errorf("--listen-client-urls %q is no URL such as http://127.0.0.1:2379: this stand-in has neither certificates nor sockets", s)
		}
		o.Listen = append(o.Listen, u.Host)
	}
	return o, nil
}

// etcdTimeout is for a request's headers, and for requests that are under way when the stand-in is stopped.
const etcdTimeout = time.Second

// standInField is what the stand-in's /version has and etcd's hasn't: by it kube-apiserver's name knows that the store is inside.
const standInField = "standIn"

// RunEtcd answers /health and /version at the client URLs until ctx ends. It stores nothing: the server beside it has a store of its own.
func RunEtcd(ctx context.Context, o *EtcdOptions, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", answer(`{"health":"true","reason":""}`))
	mux.HandleFunc("GET /readyz", answer("ok\n"))
	mux.HandleFunc("GET /livez", answer("ok\n"))
	mux.HandleFunc("GET /version", answer(`{"etcdserver":"`+version.Version+`","etcdcluster":"`+version.Version+`","storage":"","`+standInField+`":true}`))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: etcdTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	done := make(chan error, len(o.Listen)) // room for each listener's end
	listening := 0
	var err error
	for _, address := range o.Listen {
		var l net.Listener
		if l, err = net.Listen("tcp", address); err != nil {
			err = fmt.Errorf("--listen-client-urls: %w", err)
			break
		}
		listening++
		log.Info("answering /health in etcd's place; the store is in kube-apiserver's process", "url", "http://"+l.Addr().String())
		go func() { done <- s.Serve(l) }()
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-done:
			listening--
		}
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), etcdTimeout)
	defer cancel()
	if s.Shutdown(within) != nil {
		s.Close()
	}
	for range listening {
		<-done
	}
	return err
}

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}
