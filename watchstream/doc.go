// Package watchstream turns events into the stream that a watcher reads.
//
// It owns the event types and the rule by which a change becomes an event (Transition), the frames in
// which events go over the wire, and the life of a stream. Serve takes frames from a Source, which is a
// position in a log, and writes them to a Sink, which is a socket, with bookmarks and a deadline. A
// stream has no queue. It has a buffer, of MaxBatch bytes and some, while it asks its Source for frames and writes
// them: also while Next waits for history or for a conversion. A Sweeper wakes all the streams of a server at their
// times; a stream without a Sweeper has a timer.
//
// For those who read a stream, a Decoder turns its lines into events again; Event is one as Go programs get it.
// A Broadcaster gives events to many receivers, a Fake gives those that a test makes, and Filter and Recorder stand between
// a stream and its reader. They are for programs that use the client; the server needs none of them.
//
// Goroutines: Sweeper.Run, which the Sweeper's owner starts and ends; a Broadcaster's own, which Shutdown ends and waits
// for; and that of the timer of a stream without a Sweeper, which closes a channel and waits for nothing. All else runs in
// its caller's goroutine.
//
// Locks are leaves, and nobody waits while one is held.
//
// Bounds: MaxBatch bytes per write (or a single larger event), maxDrain at shutdown, Decoder.MaxFrame, incomingQueue of a
// Broadcaster. The queue of a Fake from NewRaceFreeFake and a Recorder's events have no bound: they're for tests.
package watchstream
