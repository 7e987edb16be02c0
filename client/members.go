package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// Member is one of the processes that have a store together.
type Member struct {
	Name    string // its --cluster-listen; "" if it hasn't started yet
	ID      string
	Address string // where the others reach it
	Voter   bool   // else a learner
	Leader  bool
	Answers bool   // to the server that was asked
	Lag     uint64 // writes that it lacks, of those that the server asked knows
}

const membersPath = "/apiserver-lite/members"

// Members lists the processes that have the server's store. Only apiserver-lite has them. A server that has its store
// alone answers with ErrNotFound.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	return c.members(ctx, &request{method: http.MethodGet, path: membersPath})
}

// RemoveMember removes the member with a name, and returns those that are left.
func (c *Client) RemoveMember(ctx context.Context, name string) ([]Member, error) {
	return c.members(ctx, &request{method: http.MethodDelete, path: membersPath + "/" + url.PathEscape(name)})
}

func (c *Client) members(ctx context.Context, r *request) ([]Member, error) {
	body, err := c.answer(ctx, r)
	if err != nil {
		return nil, err
	}
	var page struct{ Members []Member }
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("members: %w", err)
	}
	return page.Members, nil
}
