package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	flowcontrol "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/apiserver-lite/apiserver-lite/conformance/pair"
)

const (
	answerPatience = 40 * time.Second      // for one answer; upstream lets a request last a minute
	eventPatience  = 10 * time.Second      // for the event of a write that was answered
	pause          = 20 * time.Millisecond // between two looks
	timesOut       = "no answer"           // what the code of a request is that has none
)

// target is a server that is asked.
type target struct {
	url       string
	port      string // of url
	host      string // the machine's name
	authority string // of clients, as PEM
	client    *http.Client
	started   time.Time // times since then are the server's
	wellKnown map[string]string
	hooks     *hooks
	lag       time.Duration                         // after which what was written is in effect; ours needs none
	took      func(what string, took time.Duration) // is told of each request and of each wait for events; nil for nobody
}

// newTarget looks up who has the uids that headers name.
func newTarget(ctx context.Context, s *pair.Server) (*target, error) {
	at, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	t := &target{url: s.URL, port: at.Port(), host: strings.ToLower(host), authority: string(s.Authority), client: s.Client(), wellKnown: map[string]string{}}
	for plural, most := range map[string]int{
		"flowschemas":                 len(flowcontrol.MandatoryFlowSchemas) + len(flowcontrol.SuggestedFlowSchemas),
		"prioritylevelconfigurations": len(flowcontrol.MandatoryPriorityLevelConfigurations) + len(flowcontrol.SuggestedPriorityLevelConfigurations),
	} {
		list, err := t.made(ctx, "/apis/flowcontrol.apiserver.k8s.io/v1/"+plural, most)
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			t.wellKnown[item.Metadata.UID] = plural + "/" + item.Metadata.Name
		}
	}
	return t, nil
}

// items are what a list has.
type items struct {
	Items []struct{ Metadata struct{ Name, UID string } }
}

// made returns a list when it has all n objects that a server makes for itself at its start.
func (t *target) made(ctx context.Context, path string, n int) (list items, err error) {
	for end := time.Now().Add(answerPatience); ; {
		res, err := t.do(ctx, "GET", path, nil, nil)
		if err != nil {
			return list, err
		}
		list = items{}
		err = json.NewDecoder(res.Body).Decode(&list)
		res.Body.Close()
		switch {
		case err != nil || len(list.Items) >= n:
			return list, err
		case time.Now().After(end):
			return list, fmt.Errorf("GET %s: there are %d objects, want %d", path, len(list.Items), n)
		}
		select {
		case <-ctx.Done():
			return list, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// do sends a request as it is.
func (t *target) do(ctx context.Context, method, path string, body []byte, header map[string]string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, t.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "differential/1")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return t.client.Do(r)
}

// version returns the server's newest resourceVersion.
func (t *target) version(ctx context.Context) (uint64, error) {
	res, err := t.do(ctx, "GET", "/api/v1/namespaces?limit=1", nil, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		return 0, err
	}
	version, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	return version, err
}
