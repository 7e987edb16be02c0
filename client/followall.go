package client

import (
	"context"
	"fmt"
	"iter"
	"net/url"
)

// FollowAll yields what several resources have, as one State, and then each change of any of them, for ever, as Track does of one. A
// resource is named as "configmaps", "widgets.example.com", or with a version as "widgets.v1.example.com"; namespace is "" for all.
// It's one connection, and its changes come in one order: whoever has seen one has seen all before it, of whichever resource. A key
// names an object within its resource, which its kind tells.
//
// With Since it begins after that version, without a State. Where another program has changed several objects in one transaction, a
// connection that ends between these changes gives all of them again.
//
// kube-apiserver has nothing of that, and answers with ErrNotFound.
func FollowAll(ctx context.Context, c *Client, namespace string, resources []string, options ...Option) iter.Seq2[Step[Object], error] {
	t := newTracker(Collection[Object]{client: c, namespace: namespace, merged: resources}, newSettings(options))
	if len(resources) == 0 {
		t.settings.err = fmt.Errorf("client: FollowAll of no resource")
	}
	return t.run(ctx)
}

// mergedPath is where several resources are watched on one stream.
const mergedPath = "/apiserver-lite/v1/watch"

// mergedQuery returns the query of a watch as one of several resources has it.
func (c Collection[T]) mergedQuery(query url.Values) url.Values {
	several := url.Values{"resource": c.merged}
	for name, values := range query {
		switch name {
		case "sendInitialEvents":
			several["initialEvents"] = values
		case "watch", "resourceVersionMatch", "allowWatchBookmarks": // it's always so
		default:
			several[name] = values
		}
	}
	if c.namespace != "" {
		several.Set("namespace", c.namespace)
	}
	return several
}
