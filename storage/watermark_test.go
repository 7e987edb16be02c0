package storage

import (
	"sync"
	"testing"
)

func TestWatermark(t *testing.T) {
	var w Watermark
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for rev := range Revision(1000) {
				w.Raise(rev*8 + Revision(i))
			}
		})
	}
	all.Wait()
	if w.At() != 999*8+7 {
		t.Errorf("it's at %d", w.At())
	}
	if w.Raise(5); w.At() != 999*8+7 {
		t.Errorf("a lower revision has brought it to %d", w.At())
	}
	if w.Reset(5); w.At() != 5 {
		t.Errorf("it was reset, and is at %d", w.At())
	}
}
