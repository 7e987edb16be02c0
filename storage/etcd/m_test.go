package etcd
import ("testing";"strings";"fmt";"time";"os";"sync";"context")
func TestMeasure(t *testing.T) {
	dir := os.Getenv("MDIR")
	s, err := Open(t.Context(), Options{DataDir: dir})
	if err != nil { t.Fatal(err) }
	v := strings.Repeat("x", 100000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var keys []string
	t0 := time.Now()
	for w := range 16 { wg.Go(func() { for i := 0; ; i++ { k := fmt.Sprint(w, "-", i); if _, err := s.Client.Put(t.Context(), k, v); err != nil { if w == 0 { fmt.Println(err) }; return }; mu.Lock(); keys = append(keys, k); mu.Unlock() } }) }
	wg.Wait()
	fmt.Println("stopped", time.Since(t0), len(keys), s.Health(), s.Err())
	d, _ := statDisk(dir); fmt.Println(d)
	for _, k := range keys { if _, err := s.Client.Delete(t.Context(), k); err != nil { fmt.Println("delete", err); break } }
	r, err := s.Client.Get(context.Background(), "a")
	fmt.Println("get", r != nil, err)
	for i := 0; i < 15; i++ { time.Sleep(time.Second); d, _ := statDisk(dir); fmt.Println(s.Health(), d, s.Stats()) }
	fmt.Println(s.Close())
}
