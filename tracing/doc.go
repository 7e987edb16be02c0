// Package tracing notes where the time of requests goes. A Request sums it by Part, which the log shows of a request that was slow; of
// a request that is traced, each step is a span of OpenTelemetry as well. So whoever waits for something calls Begin and End, and knows
// nothing of logs and traces. A request that isn't traced costs two looks at the clock for each step, and one value in its context.
//
// A Tracer sends the spans to a collector, over OTLP. The SDK of OpenTelemetry has one goroutine for that, and its client of gRPC some
// more: they end with Close, which waits for them. Spans that the collector doesn't take are dropped when 2,048 wait.
// The lock of a Request is a leaf.
package tracing
