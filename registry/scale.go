package registry

// The scale subresource shows the number of replicas of an object, wherever it has that, as an
// autoscaling/v1 Scale. What is written to it changes that number and nothing else.

// Scale says where an object has what its scale subresource shows.
type Scale struct {
	SpecReplicasPath, StatusReplicasPath string // as ".spec.replicas"
	// Selector returns the pods' selector as text, "" for none; nil: nothing has one.
	Selector func(content map[string]any) (string, error)
}
