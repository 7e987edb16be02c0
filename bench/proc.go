package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpu is the user and system time that the server's processes have used, in seconds; NaN if they aren't known. The kernel
// counts it in nanoseconds, ended threads included.
func (s *server) cpu() float64 {
	return s.sum(func(pid int) (float64, bool) {
		const scheduled = 2 // CPUCLOCK_SCHED: what clock_getcpuclockid(3) makes of a process
		var used unix.Timespec
		err := unix.ClockGettime(int32(^pid<<3|scheduled), &used)
		return time.Duration(used.Nano()).Seconds(), err == nil
	})
}

// begin starts a measurement when the server rests, so that what it still does of what was before isn't counted. What
// it returns tells the seconds since then, and how many of CPU the server has used.
func (b *bench) begin() func() (wall, cpu float64) {
	b.rest()
	before, begin := b.cpu(), time.Now()
	return func() (wall, cpu float64) { return time.Since(begin).Seconds(), b.cpu() - before }
}

// rest waits until the server rests.
func (b *bench) rest() {
	const (
		resting = 0.05 // of a core
		parts   = 10   // of --settle: how long it must rest
	)
	window := b.settling / parts
	for end := time.Now().Add(patience); time.Now().Before(end); {
		before := b.cpu()
		time.Sleep(window)
		if used := b.cpu() - before; !(used > resting*window.Seconds()) { // nor if it isn't known
			return
		}
	}
}

// sum adds something up over the server's processes. It is NaN if there are none, or if one of them doesn't say.
func (s *server) sum(of func(pid int) (float64, bool)) float64 {
	if len(s.pids) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, pid := range s.pids {
		value, ok := of(pid)
		if !ok {
			return math.NaN()
		}
		sum += value
	}
	return sum
}

// resident is the memory of the server's processes, in MB; NaN if they aren't known.
func (s *server) resident() float64 { return s.status("VmRSS:") }

// peak is the most that it was since the processes began, or since resetPeak.
func (s *server) peak() float64 { return s.status("VmHWM:") }

// resetPeak makes peak begin anew.
func (s *server) resetPeak() {
	for _, pid := range s.pids {
		os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

func (s *server) status(line string) float64 {
	return s.sum(func(pid int) (float64, bool) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(status), line)
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0, false
		}
		kb, err := strconv.ParseFloat(fields[0], 64)
		return kb / 1024, err == nil
	})
}

// settled waits until memory stays within 1 % for as long as --settle says, or for patience, and returns it.
func (b *bench) settled() float64 {
	if len(b.pids) == 0 {
		return math.NaN()
	}
	was, since := b.resident(), time.Now()
	for end := since.Add(patience); time.Since(since) < b.settling && time.Now().Before(end); {
		time.Sleep(b.settling / 20)
		if now := b.resident(); now > was*1.01 || now < was*0.99 {
			was, since = now, time.Now()
		}
	}
	return b.resident()
}

// metric is a value of the server's /metrics, the sum of those with different labels.
func (s *server) metric(name string) (float64, error) {
	text, err := s.expect("GET", "/metrics", "", nil, 200)
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("/metrics has no %s", name)
	}
	return sum, nil
}

// percentile sorts the durations and returns one of them in milliseconds: 50 is the median, 100 the longest.
func percentile(all []time.Duration, p int) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return milliseconds(all[min(len(all)*p/100, len(all)-1)])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
