package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
)

// unread are the plug-ins that kube-apiserver configures by the file, and this server doesn't.
var unread = []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"}

// readFile returns the configurations in Options.ConfigFile by the names of their plug-ins, as YAML or JSON. Of two for one plug-in the
// first counts. What is for a plug-in that nothing configures is left out, as by kube-apiserver.
func (o *Options) readFile() (map[string][]byte, error) {
	if o.ConfigFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	file, ok := decoded.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("%s is a %T, not an AdmissionConfiguration", o.ConfigFile, decoded)
	}
	given := map[string][]byte{}
	for _, c := range file.Plugins {
		if _, known := given[c.Name]; known {
			continue
		}
		p := find(c.Name)
		if p == nil || !o.has(p) {
			continue
		}
		if slices.Contains(unread, c.Name) {
			return nil, fmt.Errorf("%s configures %s, which this server doesn't read", o.ConfigFile, c.Name)
		}
		if given[c.Name], err = o.configuration(&c); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", o.ConfigFile, c.Name, err)
		}
	}
	return given, nil
}

// configuration returns one plug-in's: what is in the file itself, or in a file of its own, whose path is relative to the first one's.
func (o *Options) configuration(c *apiserver.AdmissionPluginConfiguration) ([]byte, error) {
	switch {
	case c.Configuration != nil:
		return c.Configuration.Raw, nil
	case c.Path == "":
		return nil, nil
	case filepath.IsAbs(c.Path):
		return os.ReadFile(c.Path)
	}
	return os.ReadFile(filepath.Join(filepath.Dir(o.ConfigFile), c.Path))
}
