package negotiation

import "strings"

// The media types of a whole discovery document; clients look for these parameters in the answer.
const (
	aggregated               = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	AggregatedJSON     Media = JSON + aggregated
	AggregatedProtobuf Media = Protobuf + aggregated
)

// The protobuf forms of OpenAPI documents. Clients ask with an @ for the second dot, which isn't allowed in a media type.
const (
	OpenAPI2 Media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	OpenAPI3 Media = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// Discovery is Message and the aggregated forms besides.
func Discovery(c Clause) (Media, bool) {
	if c.Params["as"] == "APIGroupDiscoveryList" && c.Params["g"] == "apidiscovery.k8s.io" && c.Params["v"] == "v2" {
		switch Media(c.Media) {
		case JSON:
			return AggregatedJSON, true
		case Protobuf:
			return AggregatedProtobuf, true
		}
	}
	return Message(c)
}

// OpenAPI is Negotiate for documents that there are in JSON and in one form of protobuf.
func OpenAPI(headers []string, protobuf Media) (Media, error) {
	var read []string
	for _, header := range headers {
		read = append(read, strings.ReplaceAll(header, "@", "."))
	}
	return Negotiate(read, func(c Clause) (Media, bool) {
		if c.Media == string(protobuf) {
			return protobuf, true
		}
		return OnlyJSON(c)
	})
}

// Gzip tells whether gzip is among the encodings that a client wants, and not after none at all.
func Gzip(headers []string) bool {
	const unnamed = -1
	zip, plain, other := float64(unnamed), float64(unnamed), float64(unnamed)
	for _, c := range Parse(headers) {
		switch c.Media {
		case "gzip", "x-gzip":
			zip = max(zip, c.Q)
		case "identity":
			plain = c.Q
		case "*":
			other = c.Q
		}
	}
	if zip == unnamed {
		zip = other
	}
	return zip > 0 && zip >= plain
}
