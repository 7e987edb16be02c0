package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// streamLimit measures a process that does nothing but send the same prepared frame to all connections. Of the modes,
// flush is a Write and a Flush of net/http's for each frame, and raw is one write(2) with the chunk's framing in it.
func streamLimit(f *flag.FlagSet) measure {
	connections := f.Int("connections", 1000, "connections")
	frames := f.Int("frames", 1000, "frames to each of them")
	size := f.Int("size", 1200, "bytes of a frame, about those of an event with an object of 1 KB")
	modes := f.String("modes", "flush,raw", "how to send, one case each")
	return func(ctx context.Context, b *bench) error {
		for mode := range strings.SplitSeq(*modes, ",") {
			l := limit{bench: b, mode: mode, connections: *connections, frames: *frames, size: *size}
			if err := l.run(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// limit is one case.
type limit struct {
	*bench
	mode                      string
	connections, frames, size int
}

// run starts this program again, as the half that sends.
func (l *limit) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", framesVariable, l.mode, l.frames, l.size))
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	l.url, l.pids = "http://"+listener.Addr().String(), []int{cmd.Process.Pid}
	defer func() { l.url, l.pids = "", nil }()
	listener.Close() // the other half has it
	return l.measure()
}

func (l *limit) measure() error {
	watches := make([]*watch, l.connections)
	defer func() { closeAll(watches) }()
	_, err := parallel(64, l.connections, func(i int) (err error) {
		watches[i], err = l.watchWith(kind{}, "")
		return err
	})
	if err != nil {
		return err
	}
	errs := make([]error, l.connections)
	var reading sync.WaitGroup
	before, begin := l.cpu(), time.Now()
	for i, w := range watches {
		reading.Go(func() { errs[i] = w.skip(l.frames) })
	}
	if _, err := l.expect("POST", "/", "", nil, 200); err != nil {
		closeAll(watches)
		reading.Wait()
		return err
	}
	reading.Wait()
	took, used, all := time.Since(begin).Seconds(), l.cpu()-before, float64(l.connections*l.frames)
	if err := first(errs); err != nil {
		return err
	}
	l.report(pairs{"mode", l.mode, "connections", l.connections, "frames", l.frames, "size", l.size},
		pairs{"cpu_s_per_million", used / all * 1e6, "frames_per_s", all / took, "mb_per_s", all * float64(l.size) / 1e6 / took})
	return nil
}

// skip reads so many lines.
func (w *watch) skip(lines int) error {
	w.conn.SetReadDeadline(time.Now().Add(patience))
	for i := range lines {
		if _, err := w.lines.ReadSlice('\n'); err != nil {
			return fmt.Errorf("after %d of %d frames: %w", i, lines, err)
		}
	}
	return nil
}

// framesVariable tells this program in its environment that it is the half that sends, and what.
const framesVariable = "BENCH_FRAMES"

// serveFrames is that half. It returns false if this process isn't it, and else never: it's killed.
func serveFrames() bool {
	what := strings.Fields(os.Getenv(framesVariable))
	if len(what) != 3 {
		return false
	}
	frames, _ := strconv.Atoi(what[1])
	size, _ := strconv.Atoi(what[2])
	const inherited = 3 // the first of ExtraFiles
	listener, err := net.FileListener(os.NewFile(inherited, "listener"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	s := &sender{frame: []byte(strings.Repeat("x", size-1) + "\n"), frames: frames, raw: what[0] == "raw", begin: make(chan struct{})}
	http.Serve(listener, s)
	return true
}

// sender answers a GET with frames, from a POST on.
type sender struct {
	frame   []byte
	frames  int
	raw     bool
	begin   chan struct{} // closed by the first POST
	started atomic.Bool
}

func (s *sender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if s.started.CompareAndSwap(false, true) {
			close(s.begin)
		}
		return
	}
	control := http.NewResponseController(w)
	control.Flush()
	if !s.raw {
		<-s.begin
		for range s.frames {
			w.Write(s.frame)
			control.Flush()
		}
		<-r.Context().Done()
		return
	}
	conn, _, err := control.Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(s.frame), s.frame)
	<-s.begin
	for range s.frames {
		conn.Write(chunk)
	}
	conn.Read(make([]byte, 1)) // until the client goes away
}
