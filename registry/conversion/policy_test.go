package conversion

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

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

// TestRefusedAddresses: what isn't refused with the definition is refused when it's dialled, whatever a name
// resolves to.
func TestRefusedAddresses(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the webhook was called") }))
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		t.Run(host, func(t *testing.T) {
			c := config(server, "v1")
			*c.ClientConfig.URL = "https://" + host + ":" + u.Port()
			if errs := Validate(c, field.NewPath("webhook"), Policy{}); len(errs) != 1 || errs[0].Field != "webhook.clientConfig.url" {
				t.Errorf("errors are %v, want one of the url", errs)
			}
			if _, err := New(c, Policy{}); err == nil {
				t.Error("New takes it")
			}
			// A definition that got past that, as one does whose host is a name that resolves so.
			w := dialling(t, c, Policy{})
			_, err := w.Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			if err == nil || !strings.Contains(err.Error(), "isn't allowed: webhooks are called at public addresses") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// dialling returns a client that New made for another host than it dials.
func dialling(t *testing.T, c *apiextensionsv1.WebhookConversion, p Policy) *Webhook {
	t.Helper()
	host := *c.ClientConfig.URL
	*c.ClientConfig.URL = "https://webhook.example.com"
	w, err := New(c, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.url = host
	return w
}

func TestAllowedName(t *testing.T) {
	server := serve(t, answering(t, func(r *received) any { return converting(r) }))
	c := config(server, "v1")
	*c.ClientConfig.URL = strings.Replace(*c.ClientConfig.URL, "127.0.0.1", "localhost", 1)
	if errs := Validate(c, field.NewPath("webhook"), loopback); len(errs) > 0 {
		t.Error(errs)
	}
	w := client(t, c)
	w.transport.TLSClientConfig.ServerName = "example.com" // the certificate of httptest hasn't localhost
	if _, err := w.Convert(t.Context(), v2, [][]byte{widget(v1, "a")}); err != nil {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	text := func(s string) *string { return &s }
	at := func(url string) *apiextensionsv1.WebhookConversion {
		return &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url},
			ConversionReviewVersions: []string{"v1"},
		}
	}
	versions := func(v ...string) *apiextensionsv1.WebhookConversion {
		c := at("https://example.com")
		c.ConversionReviewVersions = v
		return c
	}
	service := &apiextensionsv1.ServiceReference{Namespace: "ns", Name: "s"}
	tests := []struct {
		name string
		c    *apiextensionsv1.WebhookConversion
		want []string // the errors begin so
	}{
		{"good", at("https://example.com"), nil},
		{"good with port and path", at("https://example.com:9443/a/b%20c"), nil},
		{"good literal address", at("https://[2606:4700::1111]:443/"), nil},
		{"nothing", nil, []string{"w: Required value"}},
		{"no clientConfig", &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}}, []string{"w.clientConfig: Required value"}},
		{"neither", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{}, ConversionReviewVersions: []string{"v1"}},
			[]string{"w.clientConfig: Required value: exactly one of url or service is required"}},
		{"both", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: text("https://example.com"), Service: service}, ConversionReviewVersions: []string{"v1"}},
			[]string{"w.clientConfig: Required value: exactly one of url or service is required"}},
		{"service", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: service}, ConversionReviewVersions: []string{"v1"}},
			nil},
		{"service without a name", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "ns"}}, ConversionReviewVersions: []string{"v1"}},
			[]string{"w.clientConfig.service.name: Required value"}},
		{"http", at("http://example.com"), []string{`w.clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme`}},
		{"file", at("file:///etc/passwd"), []string{`w.clientConfig.url: Invalid value: "file"`, `w.clientConfig.url: Invalid value: "": host must be specified`}},
		{"opaque", at("https:example.com"), []string{`w.clientConfig.url: Invalid value: "": host must be specified`}},
		{"empty", at(""), []string{`w.clientConfig.url: Invalid value: "": 'https'`, `w.clientConfig.url: Invalid value: "": host`}},
		{"port alone", at("https://:443/"), []string{`w.clientConfig.url: Invalid value: ":443": host must be specified`}},
		{"user information", at("https://u:" + secret + "@example.com"), []string{"w.clientConfig.url: Forbidden: user information"}},
		{"user information in a bad URL", at("https://u:" + secret + "@example.com/%zz"), []string{"w.clientConfig.url: Required value: url must be a valid URL"}},
		{"fragment", at("https://example.com/#x"), []string{`w.clientConfig.url: Invalid value: "x": fragments`}},
		{"query", at("https://example.com/?x"), []string{`w.clientConfig.url: Invalid value: "x": query`}},
		{"not a URL", at("https://exa mple.com"), []string{"w.clientConfig.url: Required value: url must be a valid URL"}},
		{"metadata", at("https://169.254.169.254/latest"), []string{`w.clientConfig.url: Invalid value: "169.254.169.254": address`}},
		{"localhost", at("https://LocalHost.:8443"), []string{`w.clientConfig.url: Invalid value: "LocalHost.": address`}},
		{"below localhost", at("https://a.localhost"), []string{`w.clientConfig.url: Invalid value: "a.localhost": address`}},
		{"v1beta1 alone", versions("v1beta1"), nil},
		{"unknown beside a known one", versions("v9", "v1"), nil},
		{"no versions", versions(), []string{"w.conversionReviewVersions: Required value"}},
		{"unknown versions", versions("v9"), []string{`w.conversionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1`}},
		{"twice", versions("v1", "v1"), []string{`w.conversionReviewVersions[1]: Invalid value: "v1": duplicate version`}},
		{"no name", versions("v1", "V!"), []string{`w.conversionReviewVersions[1]: Invalid value: "V!"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			errs := Validate(test.c, field.NewPath("w"), Policy{})
			if len(errs) != len(test.want) {
				t.Fatalf("errors are %v, want %q", errs, test.want)
			}
			for i, err := range errs {
				if !strings.HasPrefix(err.Error(), test.want[i]) || strings.Contains(err.Error(), secret) {
					t.Errorf("error is %v, want %s...", err, test.want[i])
				}
			}
			w, err := New(test.c, Policy{})
			if callable := len(test.want) == 0 && test.c.ClientConfig.Service == nil; (err == nil) != callable {
				t.Errorf("New's error is %v", err)
			}
			if w != nil {
				w.Close()
			}
		})
	}
}

func TestBadBundle(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	for _, bundle := range []string{"x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		c := config(server, "v1")
		c.ClientConfig.CABundle = []byte(bundle)
		if errs := Validate(c, field.NewPath("webhook"), loopback); len(errs) > 0 {
			t.Errorf("Validate looks at the bundle, which may come later: %v", errs)
		}
		if _, err := New(c, loopback); err == nil || !strings.Contains(err.Error(), "spec.conversion.webhook.clientConfig.caBundle") {
			t.Errorf("the error is %v", err)
		}
	}
}
