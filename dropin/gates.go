package dropin

import (
	_ "embed"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// upstreamGates are the feature gates of kube-apiserver 1.37.2, a line each: the name, whether it's on by default, its stage, and
// "locked" if it can't be changed.
//
//go:embed feature-gates.txt
var upstreamGates string

// gate is one of Kubernetes' feature gates.
type gate struct {
	on, locked bool
	stage      string
}

// gates are all of them by name.
type gates map[string]gate

func knownGates() gates {
	all := gates{}
	for line := range strings.Lines(upstreamGates) {
		fields := append(strings.Fields(line), "") // no lock
		all[fields[0]] = gate{on: fields[1] == "on", stage: fields[2], locked: fields[3] == "locked"}
	}
	return all
}

// stageGates change all gates of a stage, apart from those that are given by name.
var stageGates = map[string]string{allAlphaGate: "Alpha", "AllBeta": "Beta"}

const allAlphaGate = "AllAlpha"

// watchListGate has an effect, besides those of gatedKinds and gatedPlugins.
const watchListGate = "WatchList"

// gatedPlugins are the admission plug-ins that do something if a gate is on.
var gatedPlugins = map[string]string{
	mutatingPolicyGate:           "MutatingAdmissionPolicy",
	"PodTopologyLabelsAdmission": "PodTopologyLabels",
}

const mutatingPolicyGate = "MutatingAdmissionPolicy"

// gatedKinds are the kinds that are served if a gate is on.
var gatedKinds = map[string]schema.GroupVersionResource{
	"ClusterTrustBundle":     {Group: "certificates.k8s.io", Version: "v1", Resource: "clustertrustbundles"},
	"PodCertificateRequest":  {Group: "certificates.k8s.io", Version: "v1", Resource: "podcertificaterequests"},
	"StorageVersionMigrator": {Group: "storagemigration.k8s.io", Version: "v1", Resource: "storageversionmigrations"},
}

// kubeComponent may be in front of a gate's name: the component whose gate it is. There is no other.
const kubeComponent = "kube:"

// parseGates returns the gates as --feature-gates changes them, and the pairs whose change has no effect here.
func parseGates(pairs []string) (all gates, unused []string, err error) {
	known, given := knownGates(), map[string]bool{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(pair), kubeComponent), "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return nil, nil, fmt.Errorf("--feature-gates %q is no pair such as Name=true", pair)
		}
		g, ok := known[name]
		switch {
		case stageGates[name] == "" && !ok:
			return nil, nil, fmt.Errorf("--feature-gates: kube-apiserver 1.37 has no %q", name)
		case g.locked && g.on != on:
			return nil, nil, fmt.Errorf("--feature-gates: %s is locked to %v", name, g.on)
		}
		given[name] = on
	}
	all = maps.Clone(known)
	for name, stage := range stageGates {
		on, ok := given[name]
		if ok {
			all.setStage(stage, on)
			delete(given, name)
		}
		if ok && (on || name != allAlphaGate) { // those are off by default
			unused = append(unused, fmt.Sprintf("--feature-gates=%s=%v", name, on))
		}
	}
	for name, on := range given {
		if on != known[name].on && !hasEffect(name) {
			unused = append(unused, fmt.Sprintf("--feature-gates=%s=%v", name, on))
		}
		g := all[name]
		g.on = on
		all[name] = g
	}
	return all, unused, nil
}

// setStage changes all gates of a stage that can be changed.
func (all gates) setStage(stage string, on bool) {
	for name, g := range all {
		if g.stage == stage && !g.locked {
			g.on = on
			all[name] = g
		}
	}
}

// hasEffect tells whether something here goes by a gate.
func hasEffect(name string) bool {
	_, kind := gatedKinds[name]
	_, plugin := gatedPlugins[name]
	return kind || plugin || name == watchListGate
}

// serves tells whether a kind is served, as far as gates decide about it.
func (all gates) serves(path schema.GroupVersionResource) bool {
	for name, gated := range gatedKinds {
		if gated == path {
			return all[name].on
		}
	}
	return true
}
