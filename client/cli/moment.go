package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/client"
)

// Moment is a state of the past as a flag names it. The zero value is none.
type Moment struct {
	text    string
	version string        // a resourceVersion; "" for an instant
	instant time.Time     // zero for a version, and for how long ago it was
	ago     time.Duration // by the server's clock
}

// momentForms says what a Moment can be.
const momentForms = "a resourceVersion as 120, an instant as 2026-11-23T10:00:00Z, or how long ago as 10m"

// String is pflag.Value's.
func (m *Moment) String() string { return m.text }

// Type is pflag.Value's.
func (m *Moment) Type() string { return "MOMENT" }

// Set is pflag.Value's: it reads a resourceVersion, an instant, or how long ago that was.
func (m *Moment) Set(text string) error {
	*m = Moment{text: text}
	if version, err := strconv.ParseUint(text, 10, 63); err == nil && version > 0 {
		m.version = text
		return nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		m.ago = ago
		return nil
	}
	var err error
	if m.instant, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("it's %s", momentForms)
	}
	return nil
}

// Given tells whether there is one.
func (m *Moment) Given() bool { return m.text != "" }

// Version is its resourceVersion; "" if it's an instant, or none.
func (m *Moment) Version() string { return m.version }

// Options are what asks for the state then; none if there is no Moment.
func (m *Moment) Options() []client.Option {
	switch {
	case m.version != "":
		return []client.Option{client.At(m.version)}
	case m.Given() && m.instant.IsZero():
		return []client.Option{client.Ago(m.ago)}
	case m.Given():
		return []client.Option{client.AtTime(m.instant)}
	}
	return nil
}
