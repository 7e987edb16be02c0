package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Operation is a part of a transaction: what Creating, Updating, Applying, Patching, Deleting, DeletingVersion and the three that begin with Check return.
type Operation struct {
	kind string
	body any
}

// MarshalJSON returns the operation as the server wants it.
func (o Operation) MarshalJSON() ([]byte, error) {
	if o.kind == "" {
		return nil, fmt.Errorf("client: an Operation is made by Creating, Updating, Applying, Patching, Deleting or a Check")
	}
	return json.Marshal(map[string]any{o.kind: o.body})
}

// Creating creates an object, which says its apiVersion and kind.
func Creating(object any) Operation { return Operation{"create", object} }

// Updating replaces an object. If that says a resourceVersion, nobody may have written the stored one since.
func Updating(object any) Operation { return Operation{"update", object} }

// Applying applies a configuration. Transact needs FieldManager then.
func Applying(object any) Operation { return Operation{"apply", object} }

// Which names an object that an operation is about.
type Which struct {
	Resource  string `json:"resource"`            // configmaps, widgets.example.com or widgets.v1.example.com
	Namespace string `json:"namespace,omitempty"` // defaults to "default"
	Name      string `json:"name"`
}

// Patching merges a patch into an object (RFC 7396).
func Patching(which Which, patch any) Operation {
	return Operation{"patch", struct {
		Which
		Type string `json:"type"`
		Body any    `json:"body"`
	}{which, "merge", patch}}
}

// Deleting deletes an object.
func Deleting(which Which) Operation { return Operation{"delete", which} }

// DeletingVersion deletes an object, which must have that version.
func DeletingVersion(which Which, resourceVersion string) Operation {
	type preconditions struct {
		ResourceVersion string `json:"resourceVersion"`
	}
	type options struct {
		Preconditions preconditions `json:"preconditions"`
	}
	return Operation{"delete", struct {
		Which
		Options options `json:"options"`
	}{which, options{preconditions{resourceVersion}}}}
}

// check is the check of an object.
type check struct {
	Which
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Absent          bool   `json:"absent,omitempty"`
	CEL             string `json:"cel,omitempty"`
}

// CheckVersion refuses the transaction unless an object has that version before it.
func CheckVersion(which Which, resourceVersion string) Operation {
	return Operation{"check", check{Which: which, ResourceVersion: resourceVersion}}
}

// CheckAbsent refuses the transaction if an object exists before it.
func CheckAbsent(which Which) Operation { return Operation{"check", check{Which: which, Absent: true}} }

// CheckThat refuses the transaction unless a CEL expression is true of an object before it, as "object.spec.size < 3" is.
func CheckThat(which Which, cel string) Operation {
	return Operation{"check", check{Which: which, CEL: cel}}
}

// Transacted is a transaction that was written.
type Transacted struct {
	ResourceVersion string // of all that it has written; "" if that's nothing
	// Objects are those of the operations, in order: a Status where it's gone, nothing for a check, and for an operation whose object a
	// later one has written, too.
	Objects []Object
}

// maxTransacted bounds the answer to a transaction: its objects, which may be larger than what was sent of them.
const maxTransacted = 256 << 20

var aTransaction = verb{name: "a transaction", params: append(paramsOfWrite, "force"), creates: true}

// Transact does all operations, in order and in one revision, or none. Of kinds, namespaces and rights each is judged as it would be
// alone. A refusal is a *StatusError whose message names the operation, and nothing is written then. An error that comes with a
// ResourceVersion is about what was to be done after the writing, as of a Pod that was to be removed once it was marked. Only apiserver-lite has transactions. Options: DryRun,
// FieldManager, Force and Strict are for all operations.
func (c *Client) Transact(ctx context.Context, operations []Operation, options ...Option) (Transacted, error) {
	s := newSettings(options)
	if err := s.check(aTransaction); err != nil {
		return Transacted{}, err
	}
	body, err := json.Marshal(map[string]any{"operations": operations})
	if err != nil {
		return Transacted{}, err
	}
	document, err := c.answer(ctx, &request{
		method: http.MethodPost, path: "/apiserver-lite/v1/transactions", query: s.only(aTransaction), contentType: "application/json", body: body, most: maxTransacted,
	})
	if err != nil {
		return Transacted{}, err
	}
	var answer struct {
		ResourceVersion string
		Results         []struct {
			Code   int
			Object Object
			Status struct{ Message string }
		}
	}
	if err := json.Unmarshal(document, &answer); err != nil {
		return Transacted{}, fmt.Errorf("the answer to a transaction: %w", err)
	}
	t := Transacted{ResourceVersion: answer.ResourceVersion}
	for i, r := range answer.Results {
		t.Objects = append(t.Objects, r.Object)
		if r.Code >= http.StatusBadRequest {
			err = errors.Join(err, fmt.Errorf("operation %d was written with the others, and something after that failed: %s", i, r.Status.Message))
		}
	}
	return t, err
}
