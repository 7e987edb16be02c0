package wire

import (
	"net/http"
	"os"
	"time"
)

// LongAnswer is an answer by way of net/http that goes on until one side ends it. A client that takes nothing of it for too long is cut
// off. One goroutine at a time may write.
type LongAnswer struct {
	http.ResponseWriter
	Until time.Time // no piece is begun after it; zero: they may go on for ever

	control *http.ResponseController
	timeout time.Duration // that the client has to take a piece
	late    *time.Timer   // calls tooLate; it runs while something is being written
	ended   chan struct{} // has an element for each tooLate that is over
}

// NewLongAnswer ends the deadlines that ordinary answers have. An error means that there are none.
func NewLongAnswer(w http.ResponseWriter, timeout time.Duration) (*LongAnswer, error) {
	a := &LongAnswer{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout, ended: make(chan struct{}, 1)}
	err := a.control.SetReadDeadline(time.Time{})
	if err == nil {
		err = a.control.SetWriteDeadline(time.Time{})
	}
	return a, err
}

// Unwrap is for http.ResponseController.
func (a *LongAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write sends a piece within the timeout. A deadline of net/http's for each piece would have to be taken back, as one that passes ends an
// HTTP/2 stream even if nothing is being written: that's two more turns of the connection's loop than an event takes.
func (a *LongAnswer) Write(p []byte) (int, error) {
	if !a.Until.IsZero() && time.Now().After(a.Until) {
		return 0, os.ErrDeadlineExceeded
	}
	if a.late == nil {
		a.late = time.AfterFunc(a.timeout, a.tooLate)
	} else {
		a.late.Reset(a.timeout)
	}
	defer func() {
		if !a.late.Stop() {
			<-a.ended // it uses what the handler has until it returns
		}
	}()
	n, err := a.ResponseWriter.Write(p)
	if err == nil {
		err = a.control.Flush()
	}
	return n, err
}

// tooLate ends the answer.
func (a *LongAnswer) tooLate() {
	_ = a.control.SetWriteDeadline(time.Now()) // an error means that it has ended
	a.ended <- struct{}{}
}
