// Package access tells who a request comes from, and what that user may do.
package access
