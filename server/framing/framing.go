// Package framing has the forms in which a watch's events are written, and errors among them. It keeps nothing, starts no goroutine and takes no lock.
package framing

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Framing is a form in which events are written, and errors among them.
type Framing struct {
	wire.Framing
	// Tell appends an ERROR event to dst and returns it.
	Tell func(dst []byte, why metav1.Status) []byte
}

// The framings.
var (
	inJSON = Framing{
		Framing: wire.Framing{
			Media:    string(negotiation.JSON),
			Count:    func(p []byte) int { return bytes.Count(p, []byte{'\n'}) }, // each event is one line
			Messages: bytes.Lines,
		},
		Tell: func(dst []byte, why metav1.Status) []byte {
			return watchstream.AppendError(dst, status.JSON(why))
		},
	}
	serverSent = Framing{
		Framing: wire.Framing{
			Media:    string(negotiation.Events),
			Count:    func(p []byte) int { return bytes.Count(p, []byte(watchstream.ServerSentEnd)) },
			Messages: watchstream.ServerSentEvents,
		},
		Tell: func(dst []byte, why metav1.Status) []byte {
			why.Message = watchstream.Advised(why.Message, int(why.Code))
			return watchstream.AppendServerSentError(dst, status.JSON(why), int(why.Code))
		},
	}
	protobuf = Framing{
		Framing: wire.Framing{Media: kubeproto.StreamMedia, Count: kubeproto.CountFrames, Messages: kubeproto.Frames, Binary: true},
		Tell: func(dst []byte, why metav1.Status) []byte {
			return kubeproto.AppendError(dst, status.Message(why))
		},
	}
)

// Of returns the framing of a media type that negotiation.Stream has or protobuf: for any other it's JSON's.
func Of(media negotiation.Media) *Framing {
	switch media {
	case negotiation.Protobuf:
		return &protobuf
	case negotiation.Events:
		return &serverSent
	}
	return &inJSON
}
