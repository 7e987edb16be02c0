package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiserver-lite/apiserver-lite/conformance/cluster"
)

const (
	warmCreates = 500 // before what is measured
	creates     = 5000
	creators    = 16 // clients at once
)

// measureCreates returns the ms of CPU that the creation of a pod costs kube-apiserver and etcd.
func measureCreates(ctx context.Context, o cluster.Options) (ms float64, err error) {
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	// The controller manager makes the account otherwise, without which no pod is created.
	if _, err := c.Kubectl(ctx, "", "create", "serviceaccount", "default"); err != nil {
		return 0, err
	}
	if err := createPods(ctx, c, "warm", warmCreates); err != nil {
		return 0, err
	}
	before, err := cpuOf(c)
	if err != nil {
		return 0, err
	}
	if err := createPods(ctx, c, "pod", creates); err != nil {
		return 0, err
	}
	after, err := cpuOf(c)
	return float64(after-before) / float64(time.Millisecond) / creates, err
}

func createPods(ctx context.Context, c *cluster.Cluster, prefix string, n int) error {
	client := c.Server.Client()
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	for first := range creators {
		group.Go(func() error {
			for i := first; i < n; i += creators {
				if err := createPod(ctx, client, c.Server.URL, fmt.Sprintf("%s-%d", prefix, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func createPod(ctx context.Context, client *http.Client, url, name string) error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"web"}},"spec":{"containers":[`+
		`{"name":"c","image":"registry.example.com/web:1.2.3","ports":[{"containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}]}}`, name)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/namespaces/default/pods", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("the creation of pod %s is answered %d: %s", name, res.StatusCode, text)
	}
	return err
}
