// Command gadgets is an API server for one Go type: Gadget, of the group example.com. It shows what a program says about
// a type of its own: defaults, validation, warnings, printer columns, a selectable field, a status, and
// admission.
//
// Start it, with data that goes when it ends:
//
//	go run ./examples/gadgets
//
// and in a second terminal:
//
//	GADGETS=http://127.0.0.1:8080/apis/example.com/v1/namespaces/default/gadgets
//	curl -H 'Content-Type: application/yaml' --data-binary '{metadata: {name: lamp}, spec: {color: red, size: 2}}' $GADGETS
//	curl -N "$GADGETS?watch=true&fieldSelector=spec.color=red"
//
// or with kubectl:
//
//	alias k='kubectl -s http://127.0.0.1:8080'
//	k explain gadget.spec
//	echo '{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "kettle"}, "spec": {"color": "blue", "size": 3}}' | k apply --server-side -f -
//	k get gadgets
//	k patch gadget kettle --type merge -p '{"spec": {"size": -1}}'   # refused by validation
//	k delete gadget kettle                                           # refused by admission: it's not retired
//	k label gadget kettle retired=true && k delete gadget kettle
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// Gadget is something with a color and a size.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GadgetSpec   `json:"spec"`
	Status GadgetStatus `json:"status,omitempty"`
}

// GadgetSpec is what somebody wants a Gadget to be. The tags enum and minimum are for OpenAPI; validate sees to them.
type GadgetSpec struct {
	Color string `json:"color,omitempty" enum:"red,green,blue,grey"`
	Size  int64  `json:"size,omitempty" minimum:"1"`
	Owner string `json:"owner,omitempty"`
}

// SwaggerDoc describes the fields: in OpenAPI, and so in kubectl explain.
func (GadgetSpec) SwaggerDoc() map[string]string {
	return map[string]string{
		"color": "red, green, blue or grey, which is the default",
		"size":  "at least 1, which is the default",
		"owner": "who looks after it; the program that made it if nobody is named",
	}
}

// GadgetStatus is what a controller says of a Gadget.
type GadgetStatus struct {
	Ready bool `json:"ready,omitempty"`
}

// gadgets says how Gadgets are served.
var gadgets = registry.Definition[Gadget]{
	Group: "example.com", Version: "v1", Kind: "Gadget", ShortNames: []string{"gd"},
	Status: true,
	Fields: []string{"spec.color"},
	Columns: []registry.Column{
		{Name: "Color", Type: "string", JSONPath: ".spec.color"},
		{Name: "Size", Type: "integer", JSONPath: ".spec.size"},
		{Name: "Owner", Type: "string", JSONPath: ".spec.owner", Priority: 1},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	},
	Default:   setDefaults,
	Admission: []registry.Admission[Gadget]{owners{}, retirement{}},
	Validate:  validate,
	Warnings:  warnings,
}

func setDefaults(g *Gadget) {
	if g.Spec.Color == "" {
		g.Spec.Color = "grey"
	}
	if g.Spec.Size == 0 {
		g.Spec.Size = 1
	}
}

func validate(_ context.Context, g, old *Gadget, _ string) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if colors := []string{"red", "green", "blue", "grey"}; !slices.Contains(colors, g.Spec.Color) {
		errs = append(errs, field.NotSupported(spec.Child("color"), g.Spec.Color, colors))
	}
	if g.Spec.Size < 1 {
		errs = append(errs, field.Invalid(spec.Child("size"), g.Spec.Size, "must be at least 1"))
	}
	if old != nil && g.Spec.Owner != old.Spec.Owner {
		errs = append(errs, field.Forbidden(spec.Child("owner"), "can't be changed"))
	}
	return errs
}

func warnings(_ context.Context, g, _ *Gadget, _ string) (texts []string) {
	if g.Spec.Size > 100 {
		texts = append(texts, "spec.size: gadgets above 100 don't fit through the door")
	}
	return texts
}

// owners is an admission that changes objects: it fills spec.owner with the field manager where it's empty.
type owners struct{}

func (owners) Admit(_ context.Context, r *registry.AdmissionRequest[Gadget]) (pass registry.Verdict, err error) {
	if r.Object == nil || r.Object.Spec.Owner != "" { // nil: a Delete
		return pass, nil
	}
	if r.Object.Spec.Owner = r.FieldManager; r.Old != nil {
		r.Object.Spec.Owner = r.Old.Spec.Owner
	}
	return pass, nil
}

// retirement is one that refuses: nothing is deleted that isn't retired.
type retirement struct{}

func (retirement) Admit(_ context.Context, r *registry.AdmissionRequest[Gadget]) (pass registry.Verdict, err error) {
	if r.Operation == registry.Delete && r.Old.Labels["retired"] != "true" {
		return registry.Refuse(errors.New("label it retired=true first")), nil
	}
	return pass, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gadgets:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("gadgets", flag.ContinueOnError)
	flags.SetOutput(stdout)
	listen := flags.String("listen", server.DefaultListen, "address to serve on")
	dataDir := flags.String("data-dir", "", "directory for the data; without it they go when the program ends")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := &server.Server{
		Serving: server.Serving{Listen: *listen}, Data: server.Data{Dir: *dataDir, Ephemeral: *dataDir == ""},
		API: server.API{Register: func(r *registry.Registry) { registry.Register(r, gadgets) }},
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "gadgets are at %s/apis/example.com/v1/gadgets\n", s.URL())
	return s.Run(ctx)
}
