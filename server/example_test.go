package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// A server inside a Go program: on a free port, with data that goes when it's closed.
func ExampleServer() {
	s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true}}
	if err := s.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	res, err := http.Get(s.URL() + "/readyz")
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(answer), err)
	// Output: 200 ok <nil>
}

// serve runs a server until its context ends, and tells where it is as soon as it's ready.
func serve(ctx context.Context, dir string, ready func(url string)) error {
	s := &server.Server{Data: server.Data{Dir: dir}, Serving: server.Serving{Listen: "127.0.0.1:0"}}
	if err := s.Start(ctx); err != nil {
		return err
	}
	ready(s.URL())
	return s.Run(ctx) // until ctx ends; it closes the server
}

// A server that a program runs until it's told to stop.
func ExampleServer_Run() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	err = serve(ctx, dir, func(url string) {
		fmt.Println("serving", strings.HasPrefix(url, "http://127.0.0.1:"))
		stop()
	})
	fmt.Println(err)
	// Output:
	// serving true
	// <nil>
}
