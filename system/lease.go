package system

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"os"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// leaseSeconds is how long a Lease counts after its last renewal.
const leaseSeconds = 3600

// The label of Leases by which servers are known, and the annotation that says where one is reached.
const (
	identityLabel = "apiserver.kubernetes.io/identity"
	peerAddress   = "kubernetes.io/peer-advertise-address"
)

// identity is who the server is among others.
type identity struct {
	hostname string
	lease    string // its Lease's name, which is the same at each start on this machine
	holder   string // which is this process's alone
}

func newIdentity() identity {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost" // it's a part of a name, and of a label
	}
	var hashed []byte
	for _, text := range []string{hostname, Manager} {
		hashed = append(binary.BigEndian.AppendUint16(hashed, uint16(len(text))), text...)
	}
	sum := sha256.Sum256(hashed)
	name := "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
	return identity{hostname, name, name + "_" + string(uuid.NewUUID())}
}

// lease renews the Lease by which others know that the server is there. That of an earlier process is replaced.
func (m *maker) lease(ctx context.Context, served *registry.Catalog, _ string) (storage.Revision, error) {
	e := served.Kind("coordination.k8s.io/v1", "Lease")
	if e == nil {
		return 0, nil
	}
	have := cached[coordinationv1.Lease](e, metav1.NamespaceSystem, m.identity.lease)
	if have != nil && (have.Spec.HolderIdentity == nil || *have.Spec.HolderIdentity != m.identity.holder) {
		if _, err := remove(ctx, e, have); err != nil {
			return 0, err
		}
		have = nil
	}
	if have != nil {
		return amend(ctx, e, have, "", m.renew)
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: m.identity.lease}}
	m.renew(l)
	return create(ctx, e, l, "")
}

// renew makes a Lease count from now.
func (m *maker) renew(l *coordinationv1.Lease) {
	now, seconds, holder := metav1.NewMicroTime(m.Registry.Clock.Now()), int32(leaseSeconds), m.identity.holder
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &seconds, &now
	metav1.SetMetaDataLabel(&l.ObjectMeta, identityLabel, Manager)
	metav1.SetMetaDataLabel(&l.ObjectMeta, corev1.LabelHostname, m.identity.hostname)
	if m.Address.IsValid() {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, peerAddress, m.Address.String())
	}
}

// sweepLeases removes the Leases of servers that are gone.
func (m *maker) sweepLeases(ctx context.Context, served *registry.Catalog, _ string) (rev storage.Revision, err error) {
	e := served.Kind("coordination.k8s.io/v1", "Lease")
	if e == nil {
		return 0, nil
	}
	in, err := e.Prefix().Namespace(metav1.NamespaceSystem)
	if err != nil {
		return 0, err
	}
	for o := range e.Cache().Snapshot().All(in) {
		l := decoded[coordinationv1.Lease](o)
		if l == nil || l.Name == m.identity.lease || l.Labels[identityLabel] != Manager || !expired(l, m.Registry.Clock.Now()) {
			continue // its own it renews, if it's late because its clock has jumped
		}
		removed, err := remove(ctx, e, l)
		if err != nil {
			return rev, err
		}
		rev = max(rev, removed)
	}
	return rev, nil
}

func expired(l *coordinationv1.Lease, now time.Time) bool {
	s := &l.Spec
	return s.RenewTime == nil || s.LeaseDurationSeconds == nil || s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second).Before(now)
}
