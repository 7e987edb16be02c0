package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/bounds"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// labelled is a widget with the label n.
func labelled(name string, n int) string {
	return strings.Replace(widget(name), `"name"`, fmt.Sprintf(`"labels":{"n":"%d"},"name"`, n), 1)
}

// TestManyStreams has five hundred watches on one HTTP/2 connection, each of a label of its own.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	plain := newWidgets(t)
	plain.Client = h2c(t)
	for name, s := range map[string]*servertest.Server{"h2c": plain, "TLS": newSecureWidgets(t, true)} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			t.Parallel()
			const streams, writers = 500, 4
			var dialed atomic.Int32
			transport := s.Client.Transport.(*http.Transport)
			transport.CloseIdleConnections()
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			from := now(t, s, widgetsPath)
			var watches []*servertest.Stream
			for i := range streams {
				watches = append(watches, s.Watch(after(from)+fmt.Sprintf("&labelSelector=n%%3D%d", i)))
			}
			// One that isn't read, of events larger than what its window holds.
			stalled := s.Watch(after(from) + "&labelSelector=n%3Dbig")
			big := strings.Replace(widget("big"), `"name"`, `"labels":{"n":"big"},"name"`, 1)
			big = strings.Replace(big, `"size":1`, `"text":"`+strings.Repeat("x", 1<<20)+`"`, 1)
			if res, body := s.Do("POST", widgetsPath, big); res.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %s", res.Status, body)
			}
			rewrite(t, s, []string{widgetsPath + "/big"}, 6)

			var all sync.WaitGroup
			for k := range writers {
				all.Go(func() {
					for i := k; i < streams; i += writers {
						if res, body := s.Do("POST", widgetsPath, labelled(fmt.Sprint("w", i), i)); res.StatusCode != http.StatusCreated {
							t.Errorf("%s: %s", res.Status, body)
							return
						}
					}
				})
			}
			all.Wait()
			for i, w := range watches {
				if got := next(t, w).String(); got != fmt.Sprint("ADDED w", i) {
					t.Errorf("stream %d got %s", i, got)
				}
			}
			if n := dialed.Load(); n != 1 {
				t.Errorf("there were %d connections", n)
			}
			for i := range 7 {
				if got := next(t, stalled); got.Object.Metadata.Name != "big" {
					t.Errorf("event %d of the stalled stream is %s", i, got)
				}
			}
			for _, w := range watches[:streams/2] {
				w.Close()
			}
			awaitIt(t, func() bool { return openWatches(s) == streams/2+1 })
			if res, body := s.Do("DELETE", widgetsPath+"/w499", ""); res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", res.Status, body)
			}
			if got := next(t, watches[499]).String(); got != "DELETED w499" {
				t.Errorf("the last stream got %s", got)
			}
		})
	}
}

// frames is the client's side of an HTTP/2 connection, by hand.
type frames struct {
	net.Conn
	*http2.Framer
	head bytes.Buffer
	enc  *hpack.Encoder
}

// speakHTTP2 opens a connection and returns it with the settings that the server announced.
func speakHTTP2(t *testing.T, s *servertest.Server) (*frames, map[http2.SettingID]uint32) {
	t.Helper()
	f := &frames{Conn: dial(t, s)}
	f.Framer = http2.NewFramer(f.Conn, f.Conn)
	f.enc = hpack.NewEncoder(&f.head)
	io.WriteString(f.Conn, http2.ClientPreface)
	f.WriteSettings()
	frame, err := f.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	announced := map[http2.SettingID]uint32{}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("the server begins with %v", frame)
	}
	settings.ForeachSetting(func(setting http2.Setting) error {
		announced[setting.ID] = setting.Val
		return nil
	})
	f.WriteSettingsAck()
	return f, announced
}

// get sends a request on a stream.
func (f *frames) get(stream uint32, path string) error {
	f.head.Reset()
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", path}} {
		f.enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.head.Bytes(), EndStream: true, EndHeaders: true})
}

// TestStreamsAreBounded opens one watch more on a connection than Server.HTTP2MaxStreams lets it.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 10
	s := newWidgets(t, func(s *server.Server) { s.Bounds.HTTP2MaxStreams = most })
	f, announced := speakHTTP2(t, s)
	if got := announced[http2.SettingMaxConcurrentStreams]; got != most {
		t.Errorf("it announces %d streams, want %d", got, most)
	}
	for i := range most + 1 {
		if err := f.get(uint32(2*i+1), empty+"?watch=true"); err != nil {
			t.Fatal(err)
		}
	}
	for answered := 0; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			answered++
		case *http2.RSTStreamFrame:
			if frame.StreamID != 2*most+1 || frame.ErrCode != http2.ErrCodeRefusedStream && frame.ErrCode != http2.ErrCodeProtocol {
				t.Errorf("stream %d was reset: %v", frame.StreamID, frame.ErrCode)
			}
			awaitIt(t, func() bool { return openWatches(s) == most })
			return
		}
		if answered > most {
			t.Fatal("all were answered")
		}
	}
}

// TestRapidReset resets two thousand watches as soon as they are opened. What the server then still has to do
// for them is bounded: beyond that the connection goes, and others notice nothing.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		most int
	}{
		{"few streams", 20},
		{"default", bounds.DefaultHTTP2MaxStreams},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newWidgets(t, func(s *server.Server) { s.Bounds.HTTP2MaxStreams = tc.most })
			other := s.Watch(after(now(t, s, widgetsPath)))
			f, _ := speakHTTP2(t, s)
			var reader sync.WaitGroup
			reader.Go(func() {
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return // the server has had enough
					}
					switch frame := frame.(type) {
					case *http2.GoAwayFrame:
						if frame.ErrCode != http2.ErrCodeEnhanceYourCalm {
							t.Errorf("the connection ended: %v", frame)
						}
						return
					case *http2.PingFrame:
						return // it goes on
					}
				}
			})
			for i := range 2000 {
				if f.get(uint32(2*i+1), widgetsPath+"?watch=true") != nil || f.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel) != nil {
					break // likewise
				}
			}
			f.WritePing(false, [8]byte{})
			reader.Wait()
			version := change(t, s, widgetsPath+"/a", `{"spec":{"n":1}}`)
			expectVersions(t, other, []int64{version})
			awaitIt(t, func() bool { return openWatches(s) == 1 })
			awaitIt(t, func() bool { return goroutines(t, s, "server.(*handler).watch") == 0 })
		})
	}
}

// TestStrangersOverHTTP2: a connection ends with the first answer of 401, so that nobody can ask again and again over it.
func TestStrangersOverHTTP2(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Token = "sesame" })
	f, _ := speakHTTP2(t, s)
	if err := f.get(1, "/version"); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			f.WritePing(false, [8]byte{1})
		case *http2.GoAwayFrame:
			return
		case *http2.PingFrame:
			if frame.IsAck() {
				t.Fatal("the connection goes on")
			}
		}
	}
}
