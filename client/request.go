package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	jsonType = "application/json"

	// maxStatus is how many bytes of a refusal are read.
	maxStatus = 3 << 20
	// maxAnswer is how many bytes an answer may have that isn't a watch: a list that isn't paged can be long.
	maxAnswer = 4 << 30
	// maxRetryAfter is the longest Retry-After that is believed.
	maxRetryAfter = 5 * time.Minute
)

// request is one HTTP request. Its body is kept, because it may be sent again.
type request struct {
	method, path string
	query        url.Values
	accept       string // defaults to JSON
	contentType  string // of body
	body         []byte
	most         int64 // bytes of the answer; defaults to maxAnswer
}

// errTooLong is returned for an answer that has more bytes than the request allows.
var errTooLong = errors.New("the answer is too long")

// answer sends the request and returns the body of the answer.
func (c *Client) answer(ctx context.Context, r *request) ([]byte, error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, c.late())
		defer cancel()
	}
	response, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	most := cmp.Or(r.most, maxAnswer)
	if response.ContentLength > 0 && response.ContentLength < most {
		body.Grow(int(response.ContentLength) + bytes.MinRead)
	}
	n, err := body.ReadFrom(io.LimitReader(response.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", r.method, r.path, err)
	}
	if n == most {
		return nil, fmt.Errorf("%s %s: %w: it has more than %d bytes", r.method, r.path, errTooLong, most)
	}
	return body.Bytes(), nil
}

// late is the error of a request that isn't answered within the timeout.
func (c *Client) late() error {
	return fmt.Errorf("no answer within %v: %w", c.timeout, context.DeadlineExceeded)
}

// send sends the request until it's answered with something else than "come back later", and returns the answer if it's a
// success. It waits for as long as the server says, unless ctx ends before that: then the answer is the error at once.
func (c *Client) send(ctx context.Context, r *request) (*http.Response, error) {
	for {
		response, err := c.try(ctx, r)
		refusal, ok := errors.AsType[*StatusError](err)
		if !ok || refusal.RetryAfter == 0 || refusal.Code != http.StatusTooManyRequests && refusal.Code != http.StatusServiceUnavailable {
			return response, err
		}
		pause := refusal.comeBack()
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
			return nil, refusal
		}
		c.log.InfoContext(ctx, "the server asks to come back later", "method", r.method, "path", r.path, "code", refusal.Code, "after", pause)
		if err := sleep(ctx, pause); err != nil {
			return nil, errors.Join(err, refusal)
		}
	}
}

// comeBack is RetryAfter and a little more by chance, so that not all clients come back at once.
func (e *StatusError) comeBack() time.Duration { return e.RetryAfter + rand.N(e.RetryAfter/10+1) }

// try sends the request and returns the answer if it's a success; a refusal is a *StatusError. What is answered 401 is sent
// once more if there may be a newer credential by now: the server hasn't looked at it.
func (c *Client) try(ctx context.Context, r *request) (*http.Response, error) {
	for renewed := false; ; renewed = true {
		sent := time.Now()
		response, err := c.attempt(ctx, r)
		if err != nil || response.StatusCode < http.StatusMultipleChoices {
			return response, err
		}
		refusal := readRefusal(response)
		if refusal.Code != http.StatusUnauthorized || len(c.unauthorized) == 0 || renewed {
			return nil, refusal
		}
		for _, tell := range c.unauthorized {
			tell(sent)
		}
	}
}

// attempt sends the request once.
func (c *Client) attempt(ctx context.Context, r *request) (*http.Response, error) {
	address := c.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	q, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return nil, err
	}
	q.Header.Set("User-Agent", c.userAgent)
	q.Header.Set("Accept", jsonType)
	if r.accept != "" {
		q.Header.Set("Accept", r.accept)
	}
	if r.body != nil {
		q.Header.Set("Content-Type", r.contentType)
	}
	if c.token != nil {
		token, err := c.token(ctx)
		if err != nil {
			return nil, fmt.Errorf("get a token: %w", err)
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
	}
	response, err := c.http.Do(q)
	if err != nil {
		if ctx.Err() != nil { // says more than that the request was cancelled
			return nil, fmt.Errorf("%s %s: %w", r.method, r.path, context.Cause(ctx))
		}
		return nil, err
	}
	for _, warning := range response.Header["Warning"] {
		c.log.WarnContext(ctx, "the server warns", "method", r.method, "path", r.path, "warning", warningText(warning))
	}
	return response, nil
}

// readRefusal makes an error of an answer that is no success.
func readRefusal(response *http.Response) *StatusError {
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxStatus)) // what came of it, if it was cut
	refusal := statusError(response.StatusCode, body)
	if header := response.Header.Get("Retry-After"); header != "" {
		if seconds, err := strconv.Atoi(header); err == nil {
			refusal.RetryAfter = time.Duration(seconds) * time.Second
		} else if at, err := http.ParseTime(header); err == nil {
			refusal.RetryAfter = max(time.Until(at), time.Second)
		}
	}
	refusal.RetryAfter = min(max(refusal.RetryAfter, 0), maxRetryAfter)
	return refusal
}

// warningText returns the text of a Warning header: 299 - "text".
func warningText(header string) string {
	if _, quoted, ok := strings.Cut(header, `"`); ok {
		if text, err := strconv.Unquote(`"` + quoted); err == nil {
			return text
		}
	}
	return header
}

// sleep waits, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// encode is JSON of what goes to the server.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return body, nil
}
