// Package client lets a Go program read, write and watch objects of a Kubernetes API: apiserver-lite's, or
// kube-apiserver's. It needs the standard library only.
//
// An object is a struct of the program's own, with Meta embedded:
//
//	type Widget struct {
//		client.Meta
//		Spec struct {
//			Color string `json:"color"`
//			Size  int    `json:"size"`
//		} `json:"spec"`
//	}
//
// A Collection is a resource, in one namespace or in all:
//
//	c, err := client.New("http://127.0.0.1:8080", client.Options{})
//	widgets := client.Resource[Widget](c, "example.com/v1", "widgets").In("default")
//
//	red, err := widgets.Get(ctx, "red")
//	red, err = client.Update(ctx, widgets, "red", func(w *Widget) error { w.Spec.Size++; return nil })
//
// # Errors
//
// What the server refuses is a *StatusError, and errors.Is tells what kind: ErrNotFound, ErrConflict, ErrExpired and so
// on. A request that is answered 429 or 503 with a Retry-After is sent again after that time, until its context ends; but of a
// watch that's an error, after which those who follow pause. One that is answered 401 is sent once more with what its files of
// tokens and certificates, or the command that prints them, have then. No other request is repeated, but for those that say so.
//
// # Watching
//
// Each of these calls builds on the one before it:
//
//   - Collection.Watch reads one connection's events. It ends where the server ends it.
//   - Collection.Follow goes on through cut connections, restarts and errors. It gives each event after a version exactly
//     once and in order, and it never ends without an error.
//   - Collection.Track gives what there is, and then each change, for ever: it lists, follows, and lists anew when history is gone.
//   - Collection.Until waits until one object is in a state.
//   - Reflect keeps a Store the same as the collection, by what Track gives.
//   - Cache is such a store in memory, with indexes and subscriptions.
//
// A list and what follows it:
//
//	list, err := widgets.List(ctx, client.Labels("tier=front"))
//	for widget, err := range list.All(ctx) { … }
//	for event, err := range widgets.Follow(ctx, list.ResourceVersion, client.Labels("tier=front")) { … }
//
// Iterators yield an error last, and then no value with it; but Track goes on after one. They do their work in the caller's goroutine, and let go of
// their connection when the loop ends.
//
// # Types
//
// Any struct will do: without Meta its JSON must have a metadata member with name and resourceVersion, as metav1.ObjectMeta
// makes it. Object is for programs that don't know the type. Fields that a type doesn't have are lost when the object is
// written with Collection.Update; the function Update sends only what has changed, and so keeps them.
//
// # Goroutines
//
// Functions block, and the caller says go. Reflect ends with its context. StartCache alone starts a goroutine that goes on
// after it returns: Cache.Close, or the end of its context, ends that, and Close waits for it. Who waits for the cache then gets
// ErrClosed.
//
// # Locks
//
// reflector.mu comes first: it's held during calls of the Store, a Cache for example. Then Cache.mu, under which
// subscription.mu is taken, and the functions of AddIndex are called: they must be quick and must not call the cache.
// Client.mu guards a map and is a leaf. A file's mutex is held while the file with a token or a
// certificate is read. No mutex is held while a command runs that prints a credential (package kubeconfig): those who need it
// wait, each until its context ends.
//
// # Bounds
//
// An event has at most watchstream.DefaultMaxFrame bytes (16 MiB), the text of a refusal 3 MiB, and another answer 4 GiB. A
// list is fetched in pages. A subscription that takes every change holds at most a million (2^20) of them.
package client
