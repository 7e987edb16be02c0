package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ResourceInfo is what a server says of a resource.
type ResourceInfo struct {
	APIVersion string   // such as example.com/v1
	Plural     string   // such as widgets
	Singular   string   // such as widget
	Kind       string   // such as Widget
	ShortNames []string // such as wd
	Namespaced bool
	Verbs      []string
	// Subresources are the parts of objects that have paths of their own, such as status.
	Subresources []string
}

// Resources returns the resources of a group's version, such as example.com/v1, without subresources.
func (c *Client) Resources(ctx context.Context, apiVersion string) ([]ResourceInfo, error) {
	path := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		path = "/api/" + apiVersion
	}
	body, err := c.answer(ctx, &request{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	var list struct {
		Resources []struct {
			Name, SingularName, Kind string
			ShortNames, Verbs        []string
			Namespaced               bool
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("resources of %s: %w", apiVersion, err)
	}
	var resources []ResourceInfo
	subresources := map[string][]string{}
	for _, r := range list.Resources {
		if whole, part, is := strings.Cut(r.Name, "/"); is {
			subresources[whole] = append(subresources[whole], part)
			continue
		}
		resources = append(resources, ResourceInfo{
			APIVersion: apiVersion, Plural: r.Name, Singular: r.SingularName, Kind: r.Kind, ShortNames: r.ShortNames, Namespaced: r.Namespaced, Verbs: r.Verbs,
		})
	}
	for i := range resources {
		resources[i].Subresources = subresources[resources[i].Plural]
	}
	return resources, nil
}

// AllResources returns all resources, each once: in the version that its group prefers, or the first in which it is. They're in the server's
// order. With an error it returns those of the versions that the server hasn't refused, as it does those of another server that is away.
func (c *Client) AllResources(ctx context.Context) (all []ResourceInfo, err error) {
	versions, err := c.versions(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[[2]string]bool{}
	for _, apiVersion := range versions {
		group, _, ok := strings.Cut(apiVersion, "/")
		if !ok {
			group = ""
		}
		resources, failed := c.Resources(ctx, apiVersion)
		if _, refused := errors.AsType[*StatusError](failed); failed != nil && !refused {
			return nil, failed
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("resources of %s: %w", apiVersion, failed))
		}
		for _, r := range resources {
			if key := [2]string{group, r.Plural}; !seen[key] {
				seen[key] = true
				all = append(all, r)
			}
		}
	}
	return all, err
}

// versions returns the group versions that the server has: the core's first, then each group's, its preferred version
// first.
func (c *Client) versions(ctx context.Context) ([]string, error) {
	var all []string
	body, err := c.answer(ctx, &request{method: http.MethodGet, path: "/api"})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	var core struct{ Versions []string }
	if err == nil {
		if err := json.Unmarshal(body, &core); err != nil {
			return nil, fmt.Errorf("the server's versions: %w", err)
		}
	}
	all = append(all, core.Versions...)
	if body, err = c.answer(ctx, &request{method: http.MethodGet, path: "/apis"}); err != nil {
		return nil, err
	}
	type version struct{ GroupVersion string }
	var list struct {
		Groups []struct {
			PreferredVersion version
			Versions         []version
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the server's groups: %w", err)
	}
	for _, group := range list.Groups {
		all = append(all, group.PreferredVersion.GroupVersion)
		for _, v := range group.Versions {
			if v != group.PreferredVersion {
				all = append(all, v.GroupVersion)
			}
		}
	}
	return all, nil
}

// Find returns the resource that people mean: its plural, singular or short name, or its kind, in any case, and if need be
// with the group or the version and the group after it: widgets, widget, wd, widgets.example.com, widgets.v1.example.com.
// Where several groups have it, the server's order decides. ErrNotFound is returned if there's none.
func (c *Client) Find(ctx context.Context, name string) (ResourceInfo, error) {
	versions, err := c.versions(ctx)
	if err != nil {
		return ResourceInfo{}, err
	}
	bare, rest, _ := strings.Cut(strings.ToLower(name), ".")
	var failed error
	for _, apiVersion := range versions {
		group, version, ok := strings.Cut(apiVersion, "/")
		if !ok {
			group, version = "", apiVersion
		}
		if rest != "" && rest != group && rest != version+"."+group && !(group == "" && rest == version) {
			continue
		}
		resources, err := c.Resources(ctx, apiVersion)
		if err != nil {
			failed = errors.Join(failed, err) // another group may have it: one that is away must not stop all
			continue
		}
		for _, r := range resources {
			if bare == r.Plural || bare == r.Singular || bare == strings.ToLower(r.Kind) || slices.Contains(r.ShortNames, bare) {
				return r, nil
			}
		}
	}
	if failed != nil {
		return ResourceInfo{}, failed
	}
	return ResourceInfo{}, fmt.Errorf("%w: the server has no resource %q", ErrNotFound, name)
}

// FindKind returns the resource whose objects have that apiVersion and kind.
func (c *Client) FindKind(ctx context.Context, apiVersion, kind string) (ResourceInfo, error) {
	resources, err := c.Resources(ctx, apiVersion)
	if err != nil {
		return ResourceInfo{}, err
	}
	for _, r := range resources {
		if r.Kind == kind {
			return r, nil
		}
	}
	return ResourceInfo{}, fmt.Errorf("%w: the server has no %s in %s", ErrNotFound, kind, apiVersion)
}
