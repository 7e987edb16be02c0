package kube

// Lineage is what decides about an object's life: who it is, who owns it, and who holds it. Its strings share the object's
// bytes, so whoever keeps one keeps all of these.
type Lineage struct {
	UID        string
	Owners     []Owner
	Finalizers []string
}

// Owner is one of an object's ownerReferences, without what only clients look at.
type Owner struct {
	APIVersion, Kind, Name, UID string
	Blocks                      bool // blockOwnerDeletion
}

// Owned tells whether the object's metadata has ownerReferences, without a look at its bytes.
func (o *Object) Owned() bool { return o.offsets.owned }

// Lineage reads the object's lineage from its bytes. It's empty for an object with an Err. What isn't of the right type is
// left out.
func (o *Object) Lineage() (l Lineage) {
	if o.Err != nil {
		return l
	}
	s := scanner{data: o.raw, pos: int(o.offsets.metadata.from)}
	s.members(func(key []byte) {
		switch string(key) {
		case "uid":
			l.UID = s.textOrSkip()
		case "finalizers":
			s.elements(func() { l.Finalizers = append(l.Finalizers, s.textOrSkip()) })
		case "ownerReferences":
			s.elements(func() { l.Owners = append(l.Owners, s.owner()) })
		default:
			s.skip()
		}
	})
	return l
}

func (s *scanner) owner() (o Owner) {
	s.members(func(key []byte) {
		switch string(key) {
		case "apiVersion":
			o.APIVersion = s.textOrSkip()
		case "kind":
			o.Kind = s.textOrSkip()
		case "name":
			o.Name = s.textOrSkip()
		case "uid":
			o.UID = s.textOrSkip()
		case "blockOwnerDeletion":
			s.space()
			o.Blocks = s.peek() == 't'
			s.skip()
		default:
			s.skip()
		}
	})
	return o
}
