package audit

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// How events are written.
const (
	// ModeBatch writes events after their requests are answered, from a buffer. What doesn't fit into it is lost.
	ModeBatch = "batch"
	// ModeBlocking writes each event before its request goes on.
	ModeBlocking = "blocking"
	// ModeBlockingStrict refuses requests whose first event can't be written.
	ModeBlockingStrict = "blocking-strict"
)

// Options say what is audited. They are kube-apiserver's flags, and mean the same here. With the zero value nothing is.
type Options struct {
	// PolicyFile is a file with a Policy of audit.k8s.io/v1. Without one nothing is audited.
	PolicyFile string
	// Path is the file to which events are written, one a line. "-" is standard output. Without one nothing is audited.
	Path string
	// MaxSize is how large the file may become before it's rotated, in MiB. Defaults to 100 by the flag. 0 means no bound.
	MaxSize int
	// MaxAge is how many days rotated files are kept. Defaults to 366 by the flag. 0 means for ever.
	MaxAge int
	// MaxBackups is how many rotated files are kept. Defaults to 100 by the flag. 0 means any number.
	MaxBackups int
	// Compress makes rotated files gzip files.
	Compress bool
	// Mode is ModeBatch, ModeBlocking or ModeBlockingStrict. Defaults to ModeBlocking.
	Mode string
	// Batch is about ModeBatch alone.
	Batch Batch
	// Format must be json, and Version audit.k8s.io/v1: there are no others. They default to that.
	Format, Version string
	// Truncate leaves out of large events what makes them large.
	Truncate Truncate
	// Webhook is a server that gets the events, with a file or without.
	Webhook Webhook
}

// Webhook says which server gets events, as EventLists of audit.k8s.io/v1, and how.
type Webhook struct {
	// ConfigFile is a kubeconfig that says where it is. It's read again when it changes. Without one there is none.
	ConfigFile string
	// InitialBackoff is how long the second attempt to send events waits. Further ones wait longer; after sendAttempts the events are lost.
	// Defaults to 10 seconds.
	InitialBackoff time.Duration
	// Mode, Batch and Truncate are as those of the file. Mode defaults to ModeBatch, and batches are of 400 events, wait 30 seconds and, by the
	// flags, are throttled to 10 a second.
	Mode     string
	Batch    Batch
	Truncate Truncate
	// Version must be audit.k8s.io/v1, which is its default.
	Version string
}

// Batch says how events are buffered.
type Batch struct {
	// BufferSize is how many events may wait. Defaults to 10,000. Their bytes are bounded as well, by maxQueuedBytes.
	BufferSize int
	// MaxSize is how many events are written at once. Defaults to 1.
	MaxSize int
	// MaxWait is how long a batch waits for more events. Defaults to not at all.
	MaxWait time.Duration
	// Throttle bounds how many batches a second are written: QPS on average, and Burst at once.
	Throttle bool
	QPS      float32
	Burst    int
}

// Truncate says how large events may become.
type Truncate struct {
	// Enabled bounds events by MaxEventSize. First the bodies are left out. An event that is still too large is lost.
	Enabled bool
	// MaxEventSize is the bound in bytes. Defaults to 100 KiB.
	MaxEventSize int64
	// MaxBatchSize must not be less. Batches need no other bound here than that of events.
	MaxBatchSize int64
}

// kube-apiserver's defaults.
const (
	defaultMaxSize      = 100 // MiB
	defaultMaxAge       = 366 // days
	defaultMaxBackups   = 100
	defaultBufferSize   = 10_000 // events
	defaultMaxEventSize = 100 << 10
	defaultMaxBatchSize = 10 << 20
	formatJSON          = "json"

	defaultBackoff   = 10 * time.Second
	defaultSendSize  = 400 // events
	defaultSendWait  = 30 * time.Second
	defaultSendQPS   = 10 // batches
	defaultSendBurst = 15
)

// version is that of the events.
var version = auditv1.SchemeGroupVersion.String()

// AddFlags adds kube-apiserver's flags for the options.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.PolicyFile, "audit-policy-file", "", "file with an audit Policy of audit.k8s.io/v1, which says what is audited")
	set.StringVar(&o.Path, "audit-log-path", "", "file to write audit events to, one a line; '-' is standard output")
	set.IntVar(&o.MaxSize, "audit-log-maxsize", defaultMaxSize, "MiB that the audit log may have before it's rotated; 0 never rotates it")
	set.IntVar(&o.MaxAge, "audit-log-maxage", defaultMaxAge, "days for which rotated audit logs are kept; 0 keeps them for ever")
	set.IntVar(&o.MaxBackups, "audit-log-maxbackup", defaultMaxBackups, "rotated audit logs that are kept; 0 keeps all")
	set.BoolVar(&o.Compress, "audit-log-compress", false, "compress rotated audit logs with gzip")
	addDelivery(set, "audit-log", &o.Mode, &o.Batch, &o.Truncate, delivery{Mode: ModeBlocking, Batch: Batch{MaxSize: 1}})
	set.StringVar(&o.Format, "audit-log-format", formatJSON, "json is the only one")
	set.StringVar(&o.Version, "audit-log-version", version, version+" is the only one")
	w := &o.Webhook
	set.StringVar(&w.ConfigFile, "audit-webhook-config-file", "", "kubeconfig of a server that gets the audit events; read again when it changes")
	set.DurationVar(&w.InitialBackoff, "audit-webhook-initial-backoff", defaultBackoff, "how long the second attempt to send it events waits")
	addDelivery(set, "audit-webhook", &w.Mode, &w.Batch, &w.Truncate, delivery{Mode: ModeBatch, Batch: Batch{
		MaxSize: defaultSendSize, MaxWait: defaultSendWait, Throttle: true, QPS: defaultSendQPS, Burst: defaultSendBurst,
	}})
	set.StringVar(&w.Version, "audit-webhook-version", version, version+" is the only one")
}

// delivery is how events get to where they go.
type delivery struct {
	Mode     string
	Batch    Batch
	Truncate Truncate
}

// addDelivery adds the flags for one delivery, whose names begin alike.
func addDelivery(set *pflag.FlagSet, prefix string, mode *string, batch *Batch, truncate *Truncate, d delivery) {
	set.StringVar(mode, prefix+"-mode", d.Mode, "how audit events are delivered: batch (later, from a buffer), blocking (before a request goes on) or blocking-strict (a request whose event can't be delivered is refused)")
	in := ", with --" + prefix + "-mode=batch"
	set.IntVar(&batch.BufferSize, prefix+"-batch-buffer-size", defaultBufferSize, "audit events that may wait"+in)
	set.IntVar(&batch.MaxSize, prefix+"-batch-max-size", d.Batch.MaxSize, "audit events that are delivered at once"+in)
	set.DurationVar(&batch.MaxWait, prefix+"-batch-max-wait", d.Batch.MaxWait, "how long a batch waits for more events"+in)
	set.BoolVar(&batch.Throttle, prefix+"-batch-throttle-enable", d.Batch.Throttle, "bound the batches that are delivered"+in)
	set.Float32Var(&batch.QPS, prefix+"-batch-throttle-qps", d.Batch.QPS, "batches a second on average, if throttled")
	set.IntVar(&batch.Burst, prefix+"-batch-throttle-burst", d.Batch.Burst, "batches at once, if throttled")
	set.BoolVar(&truncate.Enabled, prefix+"-truncate-enabled", false, "leave the bodies out of large audit events")
	set.Int64Var(&truncate.MaxEventSize, prefix+"-truncate-max-event-size", defaultMaxEventSize, "bytes that an audit event may have, if truncated")
	set.Int64Var(&truncate.MaxBatchSize, prefix+"-truncate-max-batch-size", defaultMaxBatchSize, "bytes that a batch may have, if truncated")
}

// withDefaults fills in what isn't set. 0 is a choice for the bounds of files, so those have no defaults here.
func (o Options) withDefaults() Options {
	o.Mode = cmp.Or(o.Mode, ModeBlocking)
	o.Format = cmp.Or(o.Format, formatJSON)
	o.Version = cmp.Or(o.Version, version)
	o.Batch.MaxSize = cmp.Or(o.Batch.MaxSize, 1)
	o.Batch.BufferSize = cmp.Or(o.Batch.BufferSize, defaultBufferSize)
	o.Truncate = o.Truncate.withDefaults()
	w := &o.Webhook
	w.Mode = cmp.Or(w.Mode, ModeBatch)
	w.Version = cmp.Or(w.Version, version)
	w.InitialBackoff = cmp.Or(w.InitialBackoff, defaultBackoff)
	w.Batch.MaxSize = cmp.Or(w.Batch.MaxSize, defaultSendSize)
	w.Batch.MaxWait = cmp.Or(w.Batch.MaxWait, defaultSendWait)
	w.Batch.BufferSize = cmp.Or(w.Batch.BufferSize, defaultBufferSize)
	w.Truncate = w.Truncate.withDefaults()
	return o
}

func (t Truncate) withDefaults() Truncate {
	t.MaxEventSize = cmp.Or(t.MaxEventSize, defaultMaxEventSize)
	t.MaxBatchSize = cmp.Or(t.MaxBatchSize, max(defaultMaxBatchSize, t.MaxEventSize))
	return t
}

// Validate tells the first option that can't work, by the name of its flag.
func (o *Options) Validate() error {
	if o.PolicyFile != "" {
		if _, err := readPolicy(o.PolicyFile); err != nil {
			return fmt.Errorf("--audit-policy-file: %w", err)
		}
	}
	d := o.withDefaults()
	if o.Path != "" {
		if err := d.validateFile(); err != nil {
			return err
		}
	}
	w := d.Webhook
	switch {
	case w.ConfigFile == "":
		return nil
	case w.InitialBackoff < 0:
		return fmt.Errorf("--audit-webhook-initial-backoff must not be negative: %v", w.InitialBackoff)
	case w.Version != version:
		return fmt.Errorf("--audit-webhook-version must be %s: %q", version, w.Version)
	}
	return delivery{w.Mode, w.Batch, w.Truncate}.validate("--audit-webhook")
}

// validateFile tells the first option about the file that can't work.
func (o *Options) validateFile() error {
	switch {
	case o.MaxSize < 0:
		return fmt.Errorf("--audit-log-maxsize must not be negative: %d", o.MaxSize)
	case o.MaxAge < 0:
		return fmt.Errorf("--audit-log-maxage must not be negative: %d", o.MaxAge)
	case o.MaxBackups < 0:
		return fmt.Errorf("--audit-log-maxbackup must not be negative: %d", o.MaxBackups)
	case o.Format != formatJSON:
		return fmt.Errorf("--audit-log-format must be %s: %q", formatJSON, o.Format)
	case o.Version != version:
		return fmt.Errorf("--audit-log-version must be %s: %q", version, o.Version)
	}
	return delivery{o.Mode, o.Batch, o.Truncate}.validate("--audit-log")
}

// validate tells the first option that can't work, by the name of its flag, which begins with prefix.
func (d delivery) validate(prefix string) error {
	batch := d.Mode == ModeBatch
	switch {
	case d.Mode != ModeBatch && d.Mode != ModeBlocking && d.Mode != ModeBlockingStrict:
		return fmt.Errorf("%s-mode must be %s, %s or %s: %q", prefix, ModeBatch, ModeBlocking, ModeBlockingStrict, d.Mode)
	case batch && (d.Batch.BufferSize < 0 || d.Batch.BufferSize > maxBufferSize):
		return fmt.Errorf("%s-batch-buffer-size must be between 1 and %d: %d", prefix, maxBufferSize, d.Batch.BufferSize)
	case batch && d.Batch.MaxSize < 0:
		return fmt.Errorf("%s-batch-max-size must be positive: %d", prefix, d.Batch.MaxSize)
	case batch && d.Batch.MaxWait < 0:
		return fmt.Errorf("%s-batch-max-wait must not be negative: %v", prefix, d.Batch.MaxWait)
	case batch && d.Batch.Throttle && d.Batch.QPS <= 0:
		return fmt.Errorf("%s-batch-throttle-qps must be positive: %v", prefix, d.Batch.QPS)
	case batch && d.Batch.Throttle && d.Batch.Burst <= 0:
		return fmt.Errorf("%s-batch-throttle-burst must be positive: %d", prefix, d.Batch.Burst)
	case d.Truncate.MaxEventSize < 0:
		return fmt.Errorf("%s-truncate-max-event-size must be positive: %d", prefix, d.Truncate.MaxEventSize)
	case d.Truncate.MaxBatchSize < d.Truncate.MaxEventSize:
		return fmt.Errorf("%s-truncate-max-batch-size must not be less than %[1]s-truncate-max-event-size: %[2]d", prefix, d.Truncate.MaxBatchSize)
	}
	return nil
}
