package selectors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

func BenchmarkLabelSelectorMatches(b *testing.B) {
	m := map[string]string{"size": "5"}
	for i := range 8 {
		m[fmt.Sprintf("app.example.com/label-%d", i)] = "value"
	}
	set := selectors.SetOf(m)
	var values []string
	for i := range 1000 {
		values = append(values, fmt.Sprint("w", i))
	}
	for _, bench := range []struct{ name, selector string }{
		{"equal", "app.example.com/label-5=value"},
		{"missing", "app.example.com/label-9=value"},
		{"in3", "app.example.com/label-5 in (a,value,z)"},
		{"notin1000", "app.example.com/label-5 notin (" + strings.Join(values, ",") + ")"},
		{"greater", "size>3"},
		{"five", "app.example.com/label-1=value,app.example.com/label-5!=x,!gone,size,size<9"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := mustLabels(b, bench.selector)
			b.ReportAllocs()
			for b.Loop() {
				s.Matches(set)
			}
		})
	}
}

func BenchmarkFieldSelectorMatches(b *testing.B) {
	s := mustFields(b, "spec.color=red,status.phase!=Failed")
	f := fieldMap{"spec.color": "red", "status.phase": "Running"}
	b.ReportAllocs()
	for b.Loop() {
		s.Matches(f)
	}
}

// BenchmarkParse shows by its MB/s whether time grows with the input's length only.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		labels := strings.Repeat("example.com/tier in (front,back),", n) + "a"
		b.Run(fmt.Sprint("labels/", n), func(b *testing.B) {
			b.SetBytes(int64(len(labels)))
			b.ReportAllocs()
			for b.Loop() {
				mustLabels(b, labels)
			}
		})
		fields := strings.Repeat(`spec.color=red\,green,`, n)
		b.Run(fmt.Sprint("fields/", n), func(b *testing.B) {
			b.SetBytes(int64(len(fields)))
			b.ReportAllocs()
			for b.Loop() {
				mustFields(b, fields)
			}
		})
	}
}
