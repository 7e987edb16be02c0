// Package width has no code: its tests send wide bodies, of very many small values, to a real server, and fail where one costs
// more than a second of CPU, or on a busy machine than that much work, or 300 MB. They're a package of their own because they measure their own process.
//
// What is run by default is each case that was costly once, and a sample of what `make width` runs: each list of each kind,
// filled with 100,000 elements and with as many as are taken, through each verb.
package width
