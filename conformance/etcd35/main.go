// Etcd35 runs an etcd of an older version, for tests of storage/remote, and prints its URL. It ends with its standard input.
//
// go.mod has 3.5.15 instead of 3.5.13, the oldest that is allowed: it's the oldest from there on that the module proxy which these
// tests are built with has; it goes from 3.5.12 to 3.5.15. old.mod has 3.5.12, the newest that is refused.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	dir := flag.String("dir", "", "data directory")
	listen := flag.String("listen", "127.0.0.1:0", "address for clients")
	token := flag.String("token", "etcd-cluster", "token of the cluster, from which its id is made")
	flag.Parse()
	config := embed.NewConfig()
	config.Dir, config.InitialClusterToken = *dir, *token
	config.LogLevel, config.UnsafeNoFsync = "panic", true
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: *listen}}
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	e, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	<-e.Server.ReadyNotify()
	fmt.Println("http://" + e.Clients[0].Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	e.Server.HardStop()
}
