package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// exampleServer has two widgets, of which one grows: enough of an API for the examples.
func exampleServer() (url string, stop func()) {
	const red, blue = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"red","namespace":"default","resourceVersion":"4"},"spec":{"size":1}}`,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"blue","namespace":"default","resourceVersion":"5"},"spec":{"size":2}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("sendInitialEvents") != "":
			fmt.Fprintln(w, `{"type":"ADDED","object":`+red+`}`)
			fmt.Fprintln(w, `{"type":"ADDED","object":`+blue+`}`)
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case r.URL.Query().Get("watch") != "":
			fmt.Fprintln(w, `{"type":"MODIFIED","object":{"metadata":{"name":"blue","resourceVersion":"6"},"spec":{"size":3}}}`)
			fmt.Fprintln(w, `{"type":"DELETED","object":{"metadata":{"name":"red","resourceVersion":"7"},"spec":{"size":1}}}`)
		case r.URL.Path == "/apis/example.com/v1/namespaces/default/widgets":
			fmt.Fprint(w, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5"},"items":[`+red+`,`+blue+`]}`)
		case r.URL.Path == "/apis/example.com/v1/namespaces/default/widgets/red":
			fmt.Fprint(w, red)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"NotFound","message":"widgets.example.com \"green\" not found","code":404}`)
		}
	}))
	return s.URL, func() {
		s.CloseClientConnections()
		s.Close()
	}
}

func Example() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()

	c, err := client.New(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	widgets := client.Resource[Widget](c, "example.com/v1", "widgets").In("default")
	list, err := widgets.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for widget, err := range list.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(widget.Name, widget.Spec.Size)
	}
	for event, err := range widgets.Follow(ctx, list.ResourceVersion) {
		if err != nil {
			log.Fatal(err) // never silently
		}
		fmt.Println(event.Type, event.Key.Name, event.Object.Spec.Size)
		if event.Type == client.Deleted {
			break
		}
	}
	// Output:
	// red 1
	// blue 2
	// MODIFIED blue 3
	// DELETED red 1
}

func ExampleCollection_Get() {
	url, stop := exampleServer()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	widgets := client.Resource[Widget](c, "example.com/v1", "widgets").In("default")
	_, err = widgets.Get(context.Background(), "green")
	fmt.Println(err)
	fmt.Println(errors.Is(err, client.ErrNotFound))
	// Output:
	// widgets.example.com "green" not found
	// true
}

func ExampleResource_object() {
	url, stop := exampleServer()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	things := client.Resource[client.Object](c, "example.com/v1", "widgets").In("default")
	red, err := things.Get(context.Background(), "red")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(red.Kind(), red.Name(), string(red.Field("spec", "size")))
	// Output:
	// Widget red 1
}

func ExampleStartCache() {
	url, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	c, err := client.New(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	widgets := client.Resource[Widget](c, "example.com/v1", "widgets").In("default")
	cache, err := client.StartCache(ctx, widgets)
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	cache.AddIndex("size", func(w *Widget) []string { return []string{fmt.Sprint(w.Spec.Size)} })
	for widget := range cache.Indexed("size", "2") {
		fmt.Println(widget.Name)
	}
	fmt.Println(cache.Len(), cache.Version())
	// Output:
	// blue
	// 2 5
}
