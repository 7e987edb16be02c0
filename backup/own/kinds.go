package own

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
	"github.com/apiserver-lite/apiserver-lite/client"
)

// aliases are resources whose objects another one has, too.
var aliases = []string{"events.events.k8s.io"}

// Kinds returns the kinds that a server stores and that can be created there, each once, in the server's order: without those of other
// servers behind it, which have revisions of their own. With an error it returns what could be found out, as client.AllResources does.
func Kinds(ctx context.Context, server *client.Client) (all []client.ResourceInfo, err error) {
	found, err := server.AllResources(ctx)
	elsewhere, failed := aggregated(ctx, server, found)
	for _, kind := range found {
		if slices.Contains(kind.Verbs, "list") && slices.Contains(kind.Verbs, "create") && !slices.Contains(aliases, FullName(kind)) && !elsewhere[kind.APIVersion] {
			all = append(all, kind)
		}
	}
	return all, errors.Join(err, failed)
}

// aggregated returns the versions that other servers behind this one have, which have revisions of their own.
func aggregated(ctx context.Context, server *client.Client, found []client.ResourceInfo) (elsewhere map[string]bool, err error) {
	elsewhere = map[string]bool{}
	for _, kind := range found {
		if FullName(kind) != "apiservices.apiregistration.k8s.io" {
			continue
		}
		list, err := client.Resource[client.Object](server, kind.APIVersion, kind.Plural).List(ctx)
		if err != nil {
			return elsewhere, err
		}
		for o, err := range list.All(ctx) {
			if err != nil {
				return elsewhere, err
			}
			var spec struct {
				Group, Version string
				Service        *struct{}
			}
			if err := o.Decode(&spec, "spec"); err == nil && spec.Service != nil {
				elsewhere[strings.TrimPrefix(spec.Group+"/"+spec.Version, "/")] = true
			}
		}
	}
	return elsewhere, nil
}

// FullName returns the resource's plural with its group.
func FullName(kind client.ResourceInfo) string {
	if group := document.Group(kind.APIVersion); group != "" {
		return kind.Plural + "." + group
	}
	return kind.Plural
}
