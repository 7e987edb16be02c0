package hookclient

import (
	"net/netip"
	"testing"
)

func TestPolicy(t *testing.T) {
	refused := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
		"168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1",
		"192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0.0.0.0",
		"64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1",
		"5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
	}
	public := []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "128.0.0.1", "172.15.0.1",
		"172.32.0.1", "192.1.0.1", "223.255.255.255", "::ffff:1.1.1.1", "2606:4700::1111", "2001:4860::8888", "2a00::1",
	}
	for _, s := range refused {
		if (Policy{}).allows(netip.MustParseAddr(s)) {
			t.Errorf("%s is allowed", s)
		}
	}
	for _, s := range public {
		if !(Policy{}).allows(netip.MustParseAddr(s)) {
			t.Errorf("%s is refused", s)
		}
	}
	if (Policy{}).allows(netip.Addr{}) {
		t.Error("no address is allowed")
	}

	p := Policy{Allowed: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fe80::/64")}}
	for s, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "fe80::1%eth0": true, "127.0.0.1": false, "1.1.1.1": true,
	} {
		if got := p.allows(netip.MustParseAddr(s)); got != want {
			t.Errorf("with prefixes, %s is allowed: %v, want %v", s, got, want)
		}
	}
}

func TestProxyIsIgnored(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	c, err := New(Config{URL: "https://example.com", MaxCalls: 1, MaxAnswer: 1}, Network{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

// TestPath: a URL's path is called without empty parts and a last slash, as Kubernetes calls it.
func TestPath(t *testing.T) {
	for given, want := range map[string]string{
		"https://127.0.0.1:1//convert": "/convert", "https://127.0.0.1:1/a/": "/a", "https://127.0.0.1:1": "/", "https://127.0.0.1:1/a%2fb": "/a/b",
	} {
		c, err := New(Config{URL: given, MaxCalls: 1}, Network{})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.url.EscapedPath(); got != want {
			t.Errorf("%s is called at %s, want %s", given, got, want)
		}
		c.Close()
	}
}
