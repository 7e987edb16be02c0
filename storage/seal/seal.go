// Package seal encrypts objects at rest, as a file says that has Kubernetes' form (EncryptionConfiguration of apiserver.config.k8s.io/v1).
//
// It owns the transformer of a store's values: Keys. What the file says, which ciphers there are and how a KMS is asked is upstream's code, so
// each can read what the other has encrypted. An object's key in etcd is authenticated data where the cipher knows such (aesgcm, kms v2): a
// value that somebody moved to another key can't be read there.
//
// The file is read again when it changes, if that's asked for (reload.go). What couldn't be read before is then written anew, so that the caches
// of every replica get it (unreadable.go).
//
// Goroutines: Run is one of the caller's. Upstream has some for each KMS, which end with Close. Locks: none. Nothing here grows.
package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Options say where the keys are. The zero Options encrypt nothing.
type Options struct {
	// File is kube-apiserver's --encryption-provider-config.
	File string

	// Reload reads the file again when it has changed.
	Reload bool
}

// serverName is this program in upstream's metrics of KMSs.
const serverName = "apiserver-lite"

// Keys are what a file says: they implement storage.Transformer. They're safe for concurrent use.
type Keys struct {
	options Options
	log     *slog.Logger
	now     atomic.Pointer[keys]
	used    reload.Sum   // of the file, when it was read first
	outage  atomic.Int64 // until when no KMS is asked for what it has encrypted, in Unix nanoseconds: see FromStorage
}

// keys are what the file said at one time.
type keys struct {
	transformers encryptionconfig.StaticTransformers
	config       *encryptionconfig.EncryptionConfiguration
	end          context.CancelFunc // ends the goroutines and connections of KMSs
}

// AddFlags adds kube-apiserver's flags.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.File, "encryption-provider-config", "", "file that says which resources are encrypted in the store and how, in Kubernetes' form (EncryptionConfiguration)")
	set.BoolVar(&o.Reload, "encryption-provider-config-automatic-reload", false, "read that file again when it changes")
}

// Validate refuses settings that contradict.
func (o *Options) Validate() error {
	if o.Reload && o.File == "" {
		return errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	}
	return nil
}

// Open reads the file; without one it returns nil. Errors say what is wrong with the file, and in which line where that's
// known. A KMS that doesn't answer is no error: its objects can't be read until it does, and Run mends them.
func Open(o Options, log *slog.Logger) (*Keys, error) {
	if o.File == "" {
		return nil, nil
	}
	k := &Keys{options: o, log: log}
	k.used, _ = reload.SumOf(o.File) // read says what is wrong
	now, err := k.read()
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	k.now.Store(now)
	return k, nil
}

// read reads the file. One that others can use is refused: whoever has the keys has the Secrets.
func (k *Keys) read() (*keys, error) {
	if err := private.Secret(k.options.File, k.log); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, k.options.File, k.options.Reload, serverName)
	if err != nil {
		cancel()
		return nil, located(k.options.File, err)
	}
	return &keys{config.Transformers, config, cancel}, nil
}

// Close ends what asks KMSs. Nil Keys have none.
func (k *Keys) Close() {
	if k != nil {
		k.now.Load().end()
	}
}

// of returns what the values of a resource go through; nil for keys that hold no object, and for resources that the file doesn't name: their
// values are as they're stored, and package kube says of an encrypted one that it can't be read.
func (k *keys) of(key string) value.Transformer {
	p, _, _, ok := storage.SplitKey(key)
	if !ok {
		return nil
	}
	resource := schema.GroupResource{Group: p.Group(), Resource: p.Resource()}
	for _, rule := range []schema.GroupResource{resource, {Group: resource.Group, Resource: "*"}, {Group: "*", Resource: "*"}} {
		if k.transformers[rule] != nil {
			return k.transformers.TransformerForResource(resource)
		}
	}
	return nil
}

// ToStorage implements storage.Transformer.
func (k *Keys) ToStorage(ctx context.Context, key string, plain []byte) ([]byte, error) {
	t := k.now.Load().of(key)
	if t == nil {
		return plain, nil
	}
	return t.TransformToStorage(ctx, plain, value.DefaultContext(key))
}

const (
	// slowAnswer is a wait for a KMS after which its failure is taken for an outage, and outageTime how long it isn't asked then: the caches
	// wait for each value that they read.
	slowAnswer = 500 * time.Millisecond
	outageTime = 10 * time.Second
)

// errOutage is what a value is answered with that a KMS has encrypted, while no KMS is asked.
var errOutage = errors.New("the KMS didn't answer a moment ago")

// byKMS is what a value begins with that a KMS has encrypted.
var byKMS = []byte("k8s:enc:kms:")

// FromStorage implements storage.Transformer. When a KMS lets it wait and fails, no KMS is asked for outageTime.
func (k *Keys) FromStorage(ctx context.Context, key string, stored []byte) (plain []byte, stale bool, err error) {
	t := k.now.Load().of(key)
	if t == nil {
		return stored, false, nil
	}
	asks := bytes.HasPrefix(stored, byKMS)
	var began time.Time
	if asks {
		if began = time.Now(); began.UnixNano() < k.outage.Load() {
			return nil, false, errOutage
		}
	}
	plain, stale, err = t.TransformFromStorage(ctx, stored, value.DefaultContext(key))
	if err == nil {
		return plain, stale, nil
	}
	if asks && time.Since(began) >= slowAnswer {
		k.outage.Store(time.Now().Add(outageTime).UnixNano())
	}
	return nil, false, fmt.Errorf("decrypt: %w", err)
}

// healthTimeout is how long KMSs may take to say how they are, at least: they have as long as their own timeouts say.
const healthTimeout = 5 * time.Second

// Health asks the KMSs. Its error says which doesn't answer as it should.
func (k *Keys) Health() error { return k.now.Load().health(context.Background()) }

func (k *keys) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(healthTimeout, k.config.KMSCloseGracePeriod))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil) // upstream's checks take one, for its context alone
	if err != nil {
		return err
	}
	var errs []error
	for _, check := range k.config.HealthChecks {
		errs = append(errs, check.Check(r))
	}
	return errors.Join(errs...)
}
