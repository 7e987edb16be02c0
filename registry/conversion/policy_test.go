package conversion

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

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
			if errs := Validate(c, field.NewPath("conversion"), Policy{}); len(errs) != 1 || errs[0].Field != "conversion.webhookClientConfig.url" {
				t.Errorf("errors are %v, want one of the url", errs)
			}
			if _, err := New(c, hookclient.Network{}); err == nil {
				t.Error("New takes it")
			}
			// A definition that got past that, as one does whose host is a name that resolves so.
			w := dialling(t, c, Policy{})
			_, err := w.Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
			if err == nil || !strings.Contains(err.Error(), "isn't allowed: webhooks are called at public addresses") {
				t.Errorf("the error is %v", err)
			}
			if host == "localhost" && (strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "::1")) {
				t.Errorf("the error tells what a name resolves to: %v", err)
			}
		})
	}
}

// TestUnreachableName: an error tells at which address nobody listens only if the URL has it.
func TestUnreachableName(t *testing.T) {
	server := serve(t, http.NotFoundHandler())
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	for host, told := range map[string]bool{"localhost": false, "127.0.0.1": true} {
		c := config(server, "v1")
		*c.ClientConfig.URL = "https://" + host + ":" + u.Port()
		_, err := dialling(t, c, loopback).Convert(t.Context(), v2, [][]byte{widget(v1, "a")})
		if err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "127.0.0.1") != told {
			t.Errorf("the error of %s is %v", host, err)
		}
	}
}

// dialling returns a client of a host that Validate would refuse.
func dialling(t *testing.T, c *apiextensionsv1.WebhookConversion, p Policy) *Webhook {
	t.Helper()
	client, err := hookclient.New(hookclient.Config{URL: *c.ClientConfig.URL, MaxCalls: 1, MaxAnswer: maxAnswerBytes}, hookclient.Network{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &Webhook{client: client, version: "v1", timeout: Timeout}
}

func TestAllowedName(t *testing.T) {
	server := serve(t, answering(t, func(r *received) any { return converting(r) }))
	c := config(server, "v1")
	*c.ClientConfig.URL = strings.Replace(*c.ClientConfig.URL, "127.0.0.1", "localhost", 1)
	if errs := Validate(c, field.NewPath("webhook"), loopback); len(errs) > 0 {
		t.Error(errs)
	}
	// The certificate of httptest hasn't localhost; it's seen when the address was dialled.
	if _, err := client(t, c).Convert(t.Context(), v2, [][]byte{widget(v1, "a")}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the error is %v", err)
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
		{"nothing", nil, []string{"w.webhookClientConfig: Required value"}},
		{"no clientConfig", &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}}, []string{"w.webhookClientConfig: Required value"}},
		{"neither", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{}, ConversionReviewVersions: []string{"v1"}},
			[]string{"w.webhookClientConfig: Required value: exactly one of url or service is required"}},
		{"both", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: text("https://example.com"), Service: service}, ConversionReviewVersions: []string{"v1"}},
			[]string{"w.webhookClientConfig: Required value: exactly one of url or service is required"}},
		{"service", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: service}, ConversionReviewVersions: []string{"v1"}},
			nil},
		{"service without a name", &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "ns"}}, ConversionReviewVersions: []string{"v1"}},
			[]string{"w.webhookClientConfig.service.namespace: Required value"}},
		{"http", at("http://example.com"), []string{`w.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme`}},
		{"file", at("file:///etc/passwd"), []string{`w.webhookClientConfig.url: Invalid value: "file"`, `w.webhookClientConfig.url: Invalid value: "": host must be specified`}},
		{"opaque", at("https:example.com"), []string{`w.webhookClientConfig.url: Invalid value: "": host must be specified`}},
		{"empty", at(""), []string{`w.webhookClientConfig.url: Invalid value: "": 'https'`, `w.webhookClientConfig.url: Invalid value: "": host`}},
		{"port alone", at("https://:443/"), []string{`w.webhookClientConfig.url: Invalid value: ":443": host must be specified`}},
		{"user information", at("https://u:" + secret + "@example.com"), []string{"w.webhookClientConfig.url: Forbidden: user information"}},
		{"user information in a bad URL", at("https://u:" + secret + "@example.com/%zz"), []string{"w.webhookClientConfig.url: Required value: url must be a valid URL"}},
		{"fragment", at("https://example.com/#x"), []string{`w.webhookClientConfig.url: Invalid value: "x": fragments`}},
		{"query", at("https://example.com/?x"), []string{`w.webhookClientConfig.url: Invalid value: "x": query`}},
		{"not a URL", at("https://exa mple.com"), []string{"w.webhookClientConfig.url: Required value: url must be a valid URL"}},
		{"metadata", at("https://169.254.169.254/latest"), []string{`w.webhookClientConfig.url: Invalid value: "169.254.169.254": address`}},
		{"localhost", at("https://LocalHost.:8443"), []string{`w.webhookClientConfig.url: Invalid value: "LocalHost.": address`}},
		{"below localhost", at("https://a.localhost"), []string{`w.webhookClientConfig.url: Invalid value: "a.localhost": address`}},
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
			w, err := New(test.c, hookclient.Network{})
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
		if _, err := New(c, hookclient.Network{Policy: loopback}); err == nil || !strings.Contains(err.Error(), "spec.conversion.webhook.clientConfig.caBundle") {
			t.Errorf("the error is %v", err)
		}
	}
}
