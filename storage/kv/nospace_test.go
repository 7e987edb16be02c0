package kv_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// fullEtcd is an etcd that refuses every transaction for want of space, and has some keys.
type fullEtcd struct {
	failing
	keys map[string]stored
}

// stored is a value at a revision.
type stored struct {
	rev   int64
	value string
}

func (f fullEtcd) Get(_ context.Context, key string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	res := &clientv3.GetResponse{}
	if s, there := f.keys[key]; there {
		res.Kvs = []*mvccpb.KeyValue{{Key: []byte(key), Value: []byte(s.value), ModRevision: s.rev}}
	}
	return res, f.lost
}

// verdict is what a caller is told of a write that was refused for want of space.
type verdict struct {
	rev              storage.Revision
	noSpace, unknown bool
}

func verdictOf(rev storage.Revision, err error) verdict {
	return verdict{rev, errors.Is(err, storage.ErrNoSpace), errors.Is(err, storage.ErrUnknownOutcome)}
}

var (
	refused = verdict{noSpace: true}
	unknown = verdict{noSpace: true, unknown: true}
)

// TestWriteAtTheQuota: a write that etcd refused for want of space is done only if that is proved: an equal value may be somebody else's
// write. One that may have been done isn't told as one that wasn't.
func TestWriteAtTheQuota(t *testing.T) {
	const expected = 5
	anna, by := storage.WithAuthor(t.Context(), "anna"), storage.AuthorKey("/k")
	full := failing{err: rpctypes.ErrNoSpace}
	for name, c := range map[string]struct {
		ctx  context.Context
		etcd fullEtcd
		want verdict
	}{
		"as it was":                 {anna, fullEtcd{full, map[string]stored{"/k": {expected, "v"}, by: {expected, "anna"}}}, refused},
		"done, as its author shows": {anna, fullEtcd{full, map[string]stored{"/k": {7, "v"}, by: {7, "anna"}}}, verdict{rev: 7}},
		"the same, by another user": {anna, fullEtcd{full, map[string]stored{"/k": {7, "v"}, by: {7, "bob"}}}, unknown},
		"the same, by nobody":       {anna, fullEtcd{full, map[string]stored{"/k": {7, "v"}, by: {6, "anna"}}}, unknown},
		"the same, without authors": {t.Context(), fullEtcd{full, map[string]stored{"/k": {7, "v"}}}, unknown},
		"another value":             {t.Context(), fullEtcd{full, map[string]stored{"/k": {7, "w"}}}, unknown},
		"removed":                   {t.Context(), fullEtcd{failing: full}, unknown},
		"the read failed":           {t.Context(), fullEtcd{failing: failing{err: rpctypes.ErrNoSpace, lost: errors.New("a connection was lost")}}, verdict{unknown: true}},
		"never sent":                {anna, fullEtcd{failing{err: kv.Full{Reason: errors.New("the disk is full")}}, map[string]stored{"/k": {7, "v"}, by: {7, "anna"}}}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientv3.NewCtxClient(t.Context())
			client.KV = c.etcd
			rev, err := kv.NewWriter(client).Update(c.ctx, "/k", []byte("v"), expected)
			if got := verdictOf(rev, err); got != c.want || (err == nil) != (c.want.rev != 0) {
				t.Errorf("%d, %v; want %+v", rev, err, c.want)
			}
		})
	}
	for name, c := range map[string]struct {
		value string
		keys  map[string]stored
		want  verdict
	}{
		"nothing is there":                  {"v", nil, refused},
		"done, as no other has its uid":     {"v", map[string]stored{"/k": {7, "v"}}, verdict{rev: 7}},
		"another one's":                     {"v", map[string]stored{"/k": {7, "w"}}, unknown},
		"what has no value may be anyone's": {"", map[string]stored{"/k": {7, ""}}, unknown},
	} {
		client := clientv3.NewCtxClient(t.Context())
		client.KV = fullEtcd{full, c.keys}
		if rev, err := kv.NewWriter(client).Create(t.Context(), "/k", []byte(c.value)); verdictOf(rev, err) != c.want {
			t.Errorf("a create: %s: %d, %v; want %+v", name, rev, err, c.want)
		}
	}
}

// TestBatchAtTheQuota: a batch that etcd refused for want of space is done only if all of it is there at one revision, with its note.
func TestBatchAtTheQuota(t *testing.T) {
	const note = storage.TransactionKey
	for name, c := range map[string]struct {
		keys map[string]stored
		want verdict
	}{
		"as it was":                       {map[string]stored{"/a": {5, "u"}, "/gone": {6, "w"}}, refused},
		"one write is there by chance":    {map[string]stored{"/a": {7, "v"}, "/gone": {6, "w"}}, refused},
		"what it removes is there still":  {map[string]stored{"/a": {7, "v"}, "/b": {7, "w"}, "/gone": {6, "w"}, note: {7, "anna"}}, refused},
		"done":                            {map[string]stored{"/a": {7, "v"}, "/b": {7, "w"}, note: {7, "anna"}}, verdict{rev: 7}},
		"all is there, at two revisions":  {map[string]stored{"/a": {7, "v"}, "/b": {8, "w"}, note: {8, "anna"}}, unknown},
		"all is there, of no transaction": {map[string]stored{"/a": {7, "v"}, "/b": {7, "w"}, note: {3, "anna"}}, unknown},
		"all is there, of another user":   {map[string]stored{"/a": {7, "v"}, "/b": {7, "w"}, note: {7, "bob"}}, unknown},
		"overwritten":                     {map[string]stored{"/a": {7, "v"}, "/b": {9, "x"}, note: {7, "anna"}}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientv3.NewCtxClient(t.Context())
			client.KV = fullEtcd{failing{err: rpctypes.ErrNoSpace}, c.keys}
			rev, broken, err := kv.NewWriter(client).Commit(storage.WithAuthor(t.Context(), "anna"), storage.Batch{
				Conditions: []storage.Condition{{Key: "/a", Revision: 5}, {Key: "/b"}, {Key: "/gone", Revision: 6}},
				Writes:     []storage.Write{{Key: "/a", Value: []byte("v")}, {Key: "/b", Value: []byte("w")}, {Key: "/gone", Removed: true}},
			})
			if got := verdictOf(rev, err); got != c.want || (err == nil) != (c.want.rev != 0) || len(broken) > 0 {
				t.Errorf("%d, %v, %v; want %+v", rev, broken, err, c.want)
			}
		})
	}
}
