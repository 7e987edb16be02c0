package reads

import (
	"cmp"
	"container/heap"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Bounds of one sorted list or page. Other lists are written as they're read; what is sorted is in memory first.
const (
	// maxSorted is how many objects are sorted at once. Of each up to 300 bytes are needed, besides those of a snapshot. The server
	// lets few requests sort at a time (those that may write large answers).
	maxSorted = 200_000
	// maxSortedBytes bounds the objects that are read from history for it, in bytes: nothing else has them, and they stay until the client
	// has taken them all, or the request's time is over. A client that stalls has no place among large answers meanwhile, and a server
	// may have some hundred of these.
	maxSortedBytes = 4 << 20
)

// sorting is by what a list is sorted.
type sorting struct {
	key    selectors.SortKey
	column *kube.Column
}

// parseSorting reads sortBy; nil if there's none.
func (e Reader) parseSorting(q url.Values) (*sorting, error) {
	text := q.Get("sortBy")
	if text == "" || !selectors.IsLite(q) {
		return nil, nil
	}
	key, err := selectors.ParseSortKey(text)
	if err != nil {
		return nil, unparsed(err)
	}
	t, err := e.typeOf("sortBy")(key.Path, strings.Index(text, key.Path[0].Name))
	if err != nil {
		return nil, err
	}
	if t == selectors.Composite {
		return nil, registry.BadRequest("unable to parse sortBy: found %s, which is %s and has no order", clip.Text(key.Path.String()), t)
	}
	return &sorting{key, kube.NewColumn(key.Path, t)}, nil
}

// String returns the canonical form, "" of nil.
func (s *sorting) String() string {
	if s == nil {
		return ""
	}
	return s.key.String()
}

// sortedItem is an object with the value by which it's sorted.
type sortedItem struct {
	object *kube.Object
	key    string
	absent bool // it has no value, and comes last in either direction
}

func (s *sorting) item(o *kube.Object) sortedItem {
	key, ok := s.column.Least(o, s.key.Descending)
	return sortedItem{o, key, !ok}
}

// compare is the order of the list.
func (s *sorting) compare(a, b sortedItem) int {
	switch {
	case a.absent != b.absent && b.absent:
		return -1
	case a.absent != b.absent:
		return 1
	case a.key != b.key && s.key.Descending:
		return strings.Compare(b.key, a.key)
	}
	return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.object.Key, b.object.Key))
}

// sortedPage is the first objects of a list, as many as there may be: the last of them is on top.
type sortedPage struct {
	*sorting
	items []sortedItem
}

func (p *sortedPage) Len() int           { return len(p.items) }
func (p *sortedPage) Less(i, j int) bool { return p.compare(p.items[i], p.items[j]) > 0 }
func (p *sortedPage) Swap(i, j int)      { p.items[i], p.items[j] = p.items[j], p.items[i] }
func (p *sortedPage) Push(x any)         { p.items = append(p.items, x.(sortedItem)) }
func (p *sortedPage) Pop() any {
	last := len(p.items) - 1
	item := p.items[last]
	p.items = p.items[:last]
	return item
}

// demanded returns the columns by which a list could be found by an index, and the first page of one in its order.
func (l *List) demanded(o listOptions) []kube.Lookup {
	all := slices.Clip(l.lookups)
	if l.label != nil {
		all = append(all, kube.Lookup{Column: l.label})
	}
	if l.sorting != nil && o.limit != 0 && o.token == nil {
		all = append(all, kube.Lookup{Column: l.sorting.column})
	}
	return all
}

// indexedShare is the part of all objects, a quarter, of which an index may give so many before it's given up: a scan costs less for each.
const indexedShare = 4

// sortIndexed is sort of a page whose objects an index gives in their order, each as the least of its values, or the greatest. It reports whether
// it has found the whole page, and that something follows. Else the page may end with objects that have no value, of which no index knows.
func (l *List) sortIndexed(limit int64, after *sortedItem) bool {
	if limit <= 0 || l.snapshot == nil || l.single() || len(l.lookups) > 0 { // few objects are found by these
		return false
	}
	s, value, key := l.sorting, "", ""
	if after != nil {
		if after.absent {
			return false
		}
		value, key = after.key, after.object.Key
	}
	entries, ok := l.snapshot.InOrder(s.column, value, key, s.key.Descending)
	if !ok {
		return false
	}
	page, left := []*kube.Object{}, l.snapshot.Len()/indexedShare
	for value, key := range entries {
		if left--; left < 0 {
			return false
		}
		if !strings.HasPrefix(key, l.prefix) {
			continue
		}
		o := l.snapshot.Get(key)
		if o == nil || !l.selects(o) {
			continue
		}
		if item := s.item(o); item.key != value || after != nil && s.compare(item, *after) <= 0 {
			continue
		}
		if int64(len(page)) < limit {
			page = append(page, o)
			continue
		}
		l.Page = page
		rest := 0 // what follows a later page isn't counted, because that takes as long as the scan
		if after == nil && l.selectsAll() {
			rest = l.snapshot.Count(l.keys()) - len(page)
		}
		l.moreSorted(rest)
		return true
	}
	return false
}

// sort puts the list into its order, from where the page before ended, and ends it after limit objects if that isn't 0. Without an index
// of the field it goes through all that is selected, whatever the limit is, and keeps no more than the page in memory.
func (l *List) sort(ctx context.Context, limit int64) error {
	s, after := l.sorting, (*sortedItem)(nil)
	if l.token != nil {
		last, err := l.objectAt(ctx, l.collection+l.token.Start)
		if err != nil || last == nil {
			return cmp.Or(l.Failed(err), registry.BadRequest("invalid continue token: it names no object of the list"))
		}
		item := s.item(last)
		after = &item
	}
	if l.sortIndexed(limit, after) {
		return nil
	}
	p, most, total, bytes := sortedPage{sorting: s}, maxSorted, 0, 0
	if limit > 0 {
		most = int(min(limit, maxSorted))
	}
	for o, err := range l.all(ctx) {
		if err != nil {
			return l.Failed(err)
		}
		item := s.item(o)
		if after != nil && s.compare(item, *after) <= 0 {
			continue
		}
		total++
		bytes += l.sortedBytes(o)
		switch {
		case len(p.items) < most:
			heap.Push(&p, item)
		case s.compare(item, p.items[0]) < 0:
			bytes -= l.sortedBytes(p.items[0].object)
			p.items[0] = item
			heap.Fix(&p, 0)
		default:
			bytes -= l.sortedBytes(o)
		}
		if int64(most) != limit && total > most || bytes > maxSortedBytes {
			return registry.BadRequest("sortBy: at most %d objects are sorted at once, and %d MiB of an older version: ask for fewer with a smaller limit", maxSorted, maxSortedBytes>>20)
		}
	}
	slices.SortFunc(p.items, s.compare)
	l.Page = make([]*kube.Object, len(p.items))
	for i, item := range p.items {
		l.Page[i] = item.object
	}
	if rest := total - len(l.Page); rest > 0 && len(l.Page) > 0 {
		l.moreSorted(rest)
	}
	return nil
}

// sortedBytes is what a list keeps of an object while it's sorted, in bytes.
func (l *List) sortedBytes(o *kube.Object) int {
	if l.snapshot != nil {
		return 0 // which has it anyway
	}
	return len(o.Raw())
}

// moreSorted notes that there is another page, and how many objects follow; 0 for unknown. The token says where this page ends: the next one looks for
// the object there, which all pages of one version have.
func (l *List) moreSorted(rest int) {
	last := l.Page[len(l.Page)-1]
	t := registry.Token{Version: registry.TokenVersion, Revision: int64(l.Revision()), Start: strings.TrimPrefix(last.Key, l.collection), By: l.sorting.String()}
	l.continues = t.String()
	if l.snapshot != nil {
		l.endpoint.Res.Cache.Keep(l.snapshot)
	}
	if l.selectsAll() {
		l.remaining = rest
	}
}

// objectAt returns the object under a key, at the list's revision; nil if there's none.
func (l *List) objectAt(ctx context.Context, key string) (*kube.Object, error) {
	if l.snapshot != nil {
		return l.snapshot.Get(key), nil
	}
	for o, err := range l.endpoint.Res.Cache.Past(ctx, l.revision, storage.Range{Prefix: key}) {
		if err != nil || o.Key == key {
			return o, err
		}
		break
	}
	return nil, nil
}
