// Command rollout measures what a Deployment of a thousand pods costs: on upstream's kube-apiserver and etcd, and on ours in
// their place, in turn, with upstream's controller manager and scheduler and a hundred nodes of kwok's. Before that it measures
// what the creation of one pod costs, through all plug-ins of admission that are on by default, without anybody who looks at it.
//
//	go run ./rollout --runs 3
//
// It prints the seconds until all pods run, and of kube-apiserver and etcd together the CPU meanwhile and the most memory that
// they had at a time. A page that both have counts once: ours are one program.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/cluster"
)

const (
	manifest = "../examples/kwok/web.yaml"
	nodes    = 100
	patience = "10m" // for the rollout
	// look is how often it's looked how much memory they have. It costs the kernel a millisecond.
	look = 100 * time.Millisecond
)

// cost is what a run costs.
type cost struct {
	seconds, cpu float64
	memory       float64 // MB
	create       float64 // of one pod, ms of CPU
}

var runs = flag.Int("runs", 3, "how often each is measured")

func main() { cluster.Main("rollout", run) }

func run(ctx context.Context, o cluster.Options) error {
	if *runs < 1 {
		return errors.New("--runs is at least 1")
	}
	all := map[string][]cost{}
	for i := range *runs {
		for _, as := range cluster.Sides {
			o.As, o.Nodes = as, nodes
			c, err := measure(ctx, o)
			if err != nil {
				return fmt.Errorf("%s: %w", as, err)
			}
			o.Nodes = 0
			if c.create, err = measureCreates(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", as, err)
			}
			fmt.Printf("run %d, %s: %.1f s, %.1f s of CPU, %.0f MB; create of a pod: %.2f ms of CPU\n", i+1, as, c.seconds, c.cpu, c.memory, c.create)
			all[as] = append(all[as], c)
		}
	}
	fmt.Println("\n| 1,000 pods, medians | s | CPU s | MB | one create, CPU ms |\n|---|---|---|---|---|")
	for _, as := range cluster.Sides {
		of := func(figure func(cost) float64) float64 {
			var values []float64
			for _, c := range all[as] {
				values = append(values, figure(c))
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		fmt.Printf("| %s | %.1f | %.1f | %.0f | %.2f |\n", as, of(func(c cost) float64 { return c.seconds }), of(func(c cost) float64 { return c.cpu }),
			of(func(c cost) float64 { return c.memory }), of(func(c cost) float64 { return c.create }))
	}
	return nil
}

// measure starts a cluster and rolls the Deployment out.
func measure(ctx context.Context, o cluster.Options) (spent cost, err error) {
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	before, err := cpuOf(c)
	if err != nil {
		return cost{}, err
	}
	peak := make(chan float64)
	done := make(chan struct{})
	go func() { peak <- mostMemory(done, c.Server.PID, c.Server.EtcdPID) }()
	defer func() { spent.memory = <-peak }()
	defer close(done)
	begun := time.Now()
	if _, err := c.Kubectl(ctx, "", "apply", "-f", manifest); err != nil {
		return cost{}, err
	}
	if _, err := c.Kubectl(ctx, "", "--namespace=web", "rollout", "status", "deployment/web", "--timeout="+patience); err != nil {
		return cost{}, err
	}
	spent.seconds = time.Since(begun).Seconds()
	after, err := cpuOf(c)
	if err != nil {
		return cost{}, err
	}
	spent.cpu = (after - before).Seconds()
	return spent, nil
}

// cpuOf is what kube-apiserver and etcd have used.
func cpuOf(c *cluster.Cluster) (sum time.Duration, err error) {
	for _, pid := range []int{c.Server.PID, c.Server.EtcdPID} {
		used, err := cpu(pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// cpu is what a process has used, all its threads, in ticks of a hundredth of a second.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name before may have spaces
	const utime, stime, tick = 11, 12, 10 * time.Millisecond
	var sum time.Duration
	for _, i := range []int{utime, stime} {
		ticks, err := strconv.Atoi(string(fields[i]))
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// mostMemory is the most that processes have in memory together until done, in MB; 0 if that can't be read.
func mostMemory(done <-chan struct{}, pids ...int) (most float64) {
	for tick := time.Tick(look); ; {
		sum := 0.0
		for _, pid := range pids {
			sum += memory(pid)
		}
		most = max(most, sum)
		select {
		case <-tick:
		case <-done:
			return most
		}
	}
}

// memory is a process's share of what it has in memory, in MB: of a page that several have, each has a part.
func memory(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "Pss: %f kB", &kb); n == 1 {
			return kb / 1000
		}
	}
	return 0
}
