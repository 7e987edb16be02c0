package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// replicas are the processes of a server that is more than one: members of one embedded etcd, or replicas over an etcd
// that runs beside them. What a scenario asks goes to one of them; CPU and memory are those of all, etcd's included.
type replicas struct {
	members int    // of an embedded etcd
	etcd    string // the binary of an etcd that keeps the data
	count   int    // replicas over it
	at      int    // which one is asked; 0 is the first, which leads
	each    []*server
	keeper  *exec.Cmd // the etcd that runs
	voting  float64   // ms from the start of the member that made as many as will vote until all of those voted; NaN without one
}

func (r *replicas) register(flags *flag.FlagSet) {
	flags.IntVar(&r.members, "members", 0, "with --server: start so many members of one cluster")
	flags.StringVar(&r.etcd, "etcd", "", "with --server: start this etcd, as bin/peer/etcd, and replicas over it")
	flags.IntVar(&r.count, "replicas", 1, "with --etcd: how many")
	flags.IntVar(&r.at, "at", 0, "with --members or --etcd: which of them is asked; 0 is the first one, which leads")
}

// on tells whether there is more than one process.
func (r *replicas) on() bool { return r.members > 0 || r.etcd != "" }

// size is how many replicas there are to be.
func (r *replicas) size() int {
	if r.etcd != "" {
		return r.count
	}
	return r.members
}

func (r *replicas) check(binary string) error {
	switch {
	case !r.on():
		return nil
	case binary == "":
		return errors.New("--members and --etcd take --server")
	case r.members > 0 && r.etcd != "":
		return errors.New("--members have an etcd of their own: leave out --etcd")
	case r.at < 0 || r.at >= r.size():
		return fmt.Errorf("--at %d: there are %d replicas, of which the first one is 0", r.at, r.size())
	}
	return nil
}

// openAll starts etcd, if it's one of its own, and the replicas, one after the other.
func (s *server) openAll(ctx context.Context) error {
	flags := s.memberFlags
	if s.replicas.etcd != "" {
		url, err := s.startEtcd()
		if err != nil {
			return err
		}
		flags = func(int) (string, error) { return "--etcd-servers=" + url, nil }
	}
	var enough time.Time // when the last one was started that will vote
	for i := range s.size() {
		further, err := flags(i)
		if err != nil {
			return err
		}
		if i == s.voters()-1 {
			enough = time.Now()
		}
		one := &server{binary: s.binary, args: s.args + " " + further, token: s.token, secure: s.secure, http: s.http,
			dir: filepath.Join(s.dir, fmt.Sprint("replica-", i)), stateless: s.replicas.etcd != ""}
		if err := os.Mkdir(one.dir, 0o700); err != nil {
			return err
		}
		s.each = append(s.each, one)
		if _, err := one.start(ctx); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
		s.pids = append(s.pids, one.pids...)
	}
	s.url = s.each[s.at].url
	s.voting = math.NaN()
	if s.members < s.voters() {
		return nil
	}
	if err := s.awaitVoters(ctx); err != nil {
		return err
	}
	s.voting = milliseconds(time.Since(enough))
	return nil
}

// voters is how many of the members will vote, if there are as many.
func (s *server) voters() int {
	if s.members >= 5 && strings.Contains(s.args, "--cluster-voters=5") {
		return 5
	}
	return 3
}

// memberFlags are those of a member. The first one lets the others in.
func (s *server) memberFlags(i int) (string, error) {
	address, err := freeAddress()
	if err != nil || i == 0 {
		s.firstMember = address
		return "--cluster-listen=" + address, err
	}
	return fmt.Sprintf("--cluster-listen=%s --join=%s --join-token-file=%s", address, s.firstMember, filepath.Join(s.each[0].dir, "data", "join-token")), nil
}

// promotion is how long members may take until as many vote as will.
const promotion = 2 * time.Minute

// awaitVoters waits until as many members vote as will: what a write costs depends on it.
func (s *server) awaitVoters(ctx context.Context) error {
	want := s.voters()
	for giveUp := time.Now().Add(promotion); ; {
		answer, err := s.each[0].expect("GET", "/apiserver-lite/members", "", nil, 200)
		if err == nil && strings.Count(string(answer), `"voter":true`) == want {
			return nil
		}
		if time.Now().After(giveUp) {
			return fmt.Errorf("%d members aren't voters after %v: %s, %w", want, promotion, answer, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freeAddress returns one that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startEtcd starts the etcd and returns its URL. Whether it answers shows in the replicas' start, which waits for it.
func (s *server) startEtcd() (string, error) {
	clients, err := freeAddress()
	if err != nil {
		return "", err
	}
	peers, err := freeAddress()
	if err != nil {
		return "", err
	}
	url, peerURL := "http://"+clients, "http://"+peers
	s.keeper = exec.Command(s.replicas.etcd, "--name=bench", "--data-dir="+filepath.Join(s.dir, "etcd"), "--log-level=error",
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls="+peerURL,
		"--initial-advertise-peer-urls="+peerURL, "--initial-cluster=bench="+peerURL)
	s.keeper.Stderr = os.Stderr
	s.keeper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.keeper.Start(); err != nil {
		s.keeper = nil
		return "", err
	}
	s.pids = append(s.pids, s.keeper.Process.Pid)
	return url, nil
}

// closeAll stops what openAll started, the last one first.
func (s *server) closeAll() error {
	var errs []error
	for i := len(s.each) - 1; i >= 0; i-- {
		errs = append(errs, s.each[i].stop())
	}
	s.each = nil
	if s.keeper != nil { // etcd is made to survive a kill; asked to stop, it takes seconds to wait for watches
		errs = append(errs, s.keeper.Process.Kill())
		s.keeper.Wait()
		s.keeper = nil
	}
	return errors.Join(errs...)
}

// kill ends a replica as a crash does.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.exited
	s.cmd = nil
}

// lag has watchers on each replica see every update, and tells how late the events come there.
func lag(f *flag.FlagSet) measure {
	readers := f.Int("watches", 10, "watchers at each replica")
	updates := f.Int("updates", 4000, "updates")
	rate := f.Int("rate", 200, "updates a second, 0 for as fast as it goes")
	return func(ctx context.Context, b *bench) error {
		k, objects, err := b.createObjects(plain, 1000)
		if err != nil {
			return err
		}
		from, err := b.listVersion(k)
		if err != nil {
			return err
		}
		got, errs := make([][]arrival, *readers*len(b.each)), make([]error, *readers*len(b.each))
		used := make([]float64, len(b.each))
		var watches []*watch
		defer func() { closeAll(watches) }()
		for _, one := range b.each {
			some, err := one.watches(k, *readers, from)
			if err != nil {
				return err
			}
			watches = append(watches, some...)
		}
		for i, one := range b.each {
			used[i] = one.cpu()
		}
		var reading sync.WaitGroup
		for i, w := range watches {
			w.conn.SetReadDeadline(time.Now().Add(2 * patience))
			reading.Go(func() { got[i], errs[i] = w.collect(*updates) })
		}
		all, err := b.updateAll(k, objects, *updates, *rate)
		if err != nil {
			closeAll(watches)
		}
		reading.Wait()
		if err := errors.Join(err, first(errs)); err != nil {
			return err
		}
		for i, one := range b.each {
			late, err := lateness(got[i**readers:(i+1)**readers], all)
			if err != nil {
				return fmt.Errorf("replica %d: %w", i, err)
			}
			b.report(pairs{"replica", i, "asked", i == b.at, "watches", *readers, "rate", *rate}, pairs{"lag_p50_ms", percentile(late, 50), "lag_p99_ms", percentile(late, 99),
				"cpu_s_per_million", (one.cpu() - used[i]) / float64(*readers**updates) * 1e6, "cpu_ms_per_update", (one.cpu() - used[i]) * 1000 / float64(*updates)})
		}
		return nil
	}
}

// failover kills a replica, and tells how long it takes until a write at each survivor succeeds again. A survivor's writer goes
// on all the time, so its slowest write shows what one that is caught in between meets.
func failover(f *flag.FlagSet) measure {
	victim := f.Int("kill", 0, "which replica is killed; of members, the first one leads")
	before := f.Duration("before", 2*time.Second, "how long the writers write before the kill")
	after := f.Duration("after", 15*time.Second, "and after it")
	return func(ctx context.Context, b *bench) error {
		if *victim < 0 || *victim >= len(b.each) {
			return fmt.Errorf("--kill %d: there are %d replicas", *victim, len(b.each))
		}
		k, objects, err := b.createObjects(plain, len(b.each))
		if err != nil {
			return err
		}
		var writers []*survivor
		for i, one := range b.each {
			if i != *victim {
				writers = append(writers, &survivor{server: one, replica: i, kind: k, object: objects[i]})
			}
		}
		var writing sync.WaitGroup
		killed := make(chan time.Time, len(writers)) // one for each
		end := time.Now().Add(*before + *after)
		for _, w := range writers {
			writing.Go(func() { w.write(killed, end) })
		}
		time.Sleep(*before)
		at := time.Now()
		b.each[*victim].kill()
		for range writers {
			killed <- at
		}
		writing.Wait()
		for _, w := range writers {
			if w.back == 0 {
				return fmt.Errorf("replica %d: no write succeeded in %v after the kill; the last error: %v", w.replica, *after, w.err)
			}
			b.report(pairs{"replica", w.replica}, pairs{"back_ms", milliseconds(w.back), "slowest_ms", milliseconds(w.slowest), "refused", w.refused, "writes", w.done, "voters_ms", b.voting})
		}
		return nil
	}
}

// handover ends the replica that acts for all, and tells how long it takes until another one acts.
func handover(f *flag.FlagSet) measure {
	how := f.String("how", "stop", "stop: as an operator does; kill: as a crash does")
	within := f.Duration("within", 30*time.Second, "how long to wait for the next one that acts")
	return func(ctx context.Context, b *bench) error {
		end, ok := map[string]func(*server) error{"stop": (*server).stop, "kill": func(s *server) error { s.kill(); return nil }}[*how]
		if !ok {
			return fmt.Errorf("--how %q is neither stop nor kill", *how)
		}
		acts, err := acting(ctx, b.each, *within)
		if err != nil {
			return err
		}
		var others []*server
		for _, one := range b.each {
			if one != acts {
				others = append(others, one)
			}
		}
		begin, ended := time.Now(), make(chan error, 1)
		go func() { ended <- end(acts) }()
		_, err = acting(ctx, others, *within)
		took := time.Since(begin)
		if err := errors.Join(err, <-ended); err != nil {
			return err
		}
		b.report(pairs{"how", *how}, pairs{"acts_ms", milliseconds(took), "voters_ms", b.voting})
		return nil
	}
}

// acting waits until one of some replicas says that it acts.
func acting(ctx context.Context, each []*server, within time.Duration) (*server, error) {
	for giveUp := time.Now().Add(within); ; {
		for _, one := range each {
			if leads, err := one.metric("apiserver_lite_replica_leads"); err == nil && leads == 1 {
				return one, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(giveUp) {
			return nil, fmt.Errorf("none of %d replicas acts after %v", len(each), within)
		}
	}
}

// survivor is a writer at a replica that lives on.
type survivor struct {
	*server
	replica       int
	kind          kind
	object        *object
	back          time.Duration // from the kill to the answer of the first write that began after it and succeeded
	slowest       time.Duration // of all answers
	done, refused int
	err           error // the last one
}

// write updates the object until end.
func (w *survivor) write(killed <-chan time.Time, end time.Time) {
	var at time.Time
	for time.Now().Before(end) {
		if at.IsZero() {
			select {
			case at = <-killed:
			default:
			}
		}
		begin := time.Now()
		err := w.update(w.kind, w.object)
		took := time.Since(begin)
		w.slowest = max(w.slowest, took)
		if err == nil {
			w.done++
			if w.back == 0 && !at.IsZero() && begin.After(at) {
				w.back = time.Since(at)
			}
			continue
		}
		w.refused++
		w.err = err
		// Whether the write was done isn't known: its outcome is read from its key.
		if answer, err := w.expect("GET", w.kind.path()+"/"+w.object.name, "", nil, 200); err == nil {
			w.object.version = versionIn(answer)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
