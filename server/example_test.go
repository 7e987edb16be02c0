package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// A server inside a Go program: on a free port, with data that goes when it's closed.
func ExampleServer() {
	s := &server.Server{Listen: "127.0.0.1:0", Ephemeral: true}
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
