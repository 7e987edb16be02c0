// Package version says what this build is. It has no state but what the linker sets.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"
)

// The version of Kubernetes whose API this is; kubectl warns by it when it is too far away.
const (
	apiMajor, apiMinor = "1", "37"
	kubeVersion        = "v" + apiMajor + "." + apiMinor + ".0-lite"
	minorBefore        = "36" // the oldest whose API this one still has, as kube-apiserver says of itself
)

// release is set by the linker for releases: -X github.com/apiserver-lite/apiserver-lite/server/version.release=0.1.0
var release string

// Info says what this build is, in the form of /version.
func Info() version.Info {
	info := version.Info{
		Major: apiMajor,
		Minor: apiMinor,

		EmulationMajor: apiMajor, EmulationMinor: apiMinor, MinCompatibilityMajor: apiMajor, MinCompatibilityMinor: minorBefore,

		GitTreeState: "clean",
		GoVersion:    runtime.Version(),
		Compiler:     runtime.Compiler,
		Platform:     runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.GitCommit = s.Value
			case "vcs.time":
				info.BuildDate = s.Value
			case "vcs.modified":
				if s.Value == "true" {
					info.GitTreeState = "dirty"
				}
			}
		}
	}
	short := info.GitCommit[:min(len(info.GitCommit), 12)]
	info.GitVersion = kubeVersion + "+" + cmp.Or(release, short, "unknown")
	return info
}
