package storage_test

import (
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

func TestParseMarker(t *testing.T) {
	tests := []struct {
		name, value string
		want        string // part of the error; empty if there is none
	}{
		{"ours", string(storage.Marker{Layout: storage.MarkerLayout, ID: "a"}.Bytes()), ""},
		{"a newer one", `{"layout":2,"id":"a"}`, "run the newer version"},
		{"nothing", "", "is no marker"},
		{"no layout", `{"id":"a"}`, "is no marker"},
		{"no id", `{"layout":1}`, "is no marker"},
		{"not JSON", "kube-apiserver's", "is no marker"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := storage.ParseMarker([]byte(test.value))
			switch {
			case test.want == "" && (err != nil || m.ID != "a"):
				t.Errorf("ParseMarker = %v, %v; want it", m, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}
