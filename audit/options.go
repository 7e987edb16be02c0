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
	set.StringVar(&o.Mode, "audit-log-mode", ModeBlocking, "how audit events are written: batch (later, from a buffer), blocking (before a request goes on) or blocking-strict (a request whose event can't be written is refused)")
	set.IntVar(&o.Batch.BufferSize, "audit-log-batch-buffer-size", defaultBufferSize, "audit events that may wait, with --audit-log-mode=batch")
	set.IntVar(&o.Batch.MaxSize, "audit-log-batch-max-size", 1, "audit events that are written at once, with --audit-log-mode=batch")
	set.DurationVar(&o.Batch.MaxWait, "audit-log-batch-max-wait", 0, "how long a batch waits for more events, with --audit-log-mode=batch")
	set.BoolVar(&o.Batch.Throttle, "audit-log-batch-throttle-enable", false, "bound the batches that are written, with --audit-log-mode=batch")
	set.Float32Var(&o.Batch.QPS, "audit-log-batch-throttle-qps", 0, "batches a second on average, if throttled")
	set.IntVar(&o.Batch.Burst, "audit-log-batch-throttle-burst", 0, "batches at once, if throttled")
	set.StringVar(&o.Format, "audit-log-format", formatJSON, "json is the only one")
	set.StringVar(&o.Version, "audit-log-version", version, version+" is the only one")
	set.BoolVar(&o.Truncate.Enabled, "audit-log-truncate-enabled", false, "leave the bodies out of large audit events")
	set.Int64Var(&o.Truncate.MaxEventSize, "audit-log-truncate-max-event-size", defaultMaxEventSize, "bytes that an audit event may have, if truncated")
	set.Int64Var(&o.Truncate.MaxBatchSize, "audit-log-truncate-max-batch-size", defaultMaxBatchSize, "bytes that a batch may have, if truncated")
}

// withDefaults fills in what isn't set. 0 is a choice for the bounds of files, so those have no defaults here.
func (o Options) withDefaults() Options {
	o.Mode = cmp.Or(o.Mode, ModeBlocking)
	o.Format = cmp.Or(o.Format, formatJSON)
	o.Version = cmp.Or(o.Version, version)
	o.Batch.BufferSize = cmp.Or(o.Batch.BufferSize, defaultBufferSize)
	o.Batch.MaxSize = cmp.Or(o.Batch.MaxSize, 1)
	o.Truncate.MaxEventSize = cmp.Or(o.Truncate.MaxEventSize, defaultMaxEventSize)
	o.Truncate.MaxBatchSize = cmp.Or(o.Truncate.MaxBatchSize, max(defaultMaxBatchSize, o.Truncate.MaxEventSize))
	return o
}

// Validate tells the first option that can't work, by the name of its flag.
func (o *Options) Validate() error {
	if o.PolicyFile != "" {
		if _, err := readPolicy(o.PolicyFile); err != nil {
			return fmt.Errorf("--audit-policy-file: %w", err)
		}
	}
	if o.Path == "" {
		return nil
	}
	d := o.withDefaults()
	batch := d.Mode == ModeBatch
	switch {
	case d.Mode != ModeBatch && d.Mode != ModeBlocking && d.Mode != ModeBlockingStrict:
		return fmt.Errorf("--audit-log-mode must be %s, %s or %s: %q", ModeBatch, ModeBlocking, ModeBlockingStrict, d.Mode)
	case d.MaxSize < 0:
		return fmt.Errorf("--audit-log-maxsize must not be negative: %d", d.MaxSize)
	case d.MaxAge < 0:
		return fmt.Errorf("--audit-log-maxage must not be negative: %d", d.MaxAge)
	case d.MaxBackups < 0:
		return fmt.Errorf("--audit-log-maxbackup must not be negative: %d", d.MaxBackups)
	case batch && (d.Batch.BufferSize < 0 || d.Batch.BufferSize > maxBufferSize):
		return fmt.Errorf("--audit-log-batch-buffer-size must be between 1 and %d: %d", maxBufferSize, d.Batch.BufferSize)
	case batch && d.Batch.MaxSize < 0:
		return fmt.Errorf("--audit-log-batch-max-size must be positive: %d", d.Batch.MaxSize)
	case batch && d.Batch.MaxWait < 0:
		return fmt.Errorf("--audit-log-batch-max-wait must not be negative: %v", d.Batch.MaxWait)
	case batch && d.Batch.Throttle && d.Batch.QPS <= 0:
		return fmt.Errorf("--audit-log-batch-throttle-qps must be positive: %v", d.Batch.QPS)
	case batch && d.Batch.Throttle && d.Batch.Burst <= 0:
		return fmt.Errorf("--audit-log-batch-throttle-burst must be positive: %d", d.Batch.Burst)
	case d.Format != formatJSON:
		return fmt.Errorf("--audit-log-format must be %s: %q", formatJSON, d.Format)
	case d.Version != version:
		return fmt.Errorf("--audit-log-version must be %s: %q", version, d.Version)
	case d.Truncate.MaxEventSize < 0:
		return fmt.Errorf("--audit-log-truncate-max-event-size must be positive: %d", d.Truncate.MaxEventSize)
	case d.Truncate.MaxBatchSize < d.Truncate.MaxEventSize:
		return fmt.Errorf("--audit-log-truncate-max-batch-size must not be less than --audit-log-truncate-max-event-size: %d", d.Truncate.MaxBatchSize)
	}
	return nil
}
