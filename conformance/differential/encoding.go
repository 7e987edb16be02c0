package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// serializerFor returns client-go's serializer of a media type.
func serializerFor(mediaType string) (runtime.SerializerInfo, bool) {
	return runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
}

func init() {
	for _, add := range []func(*runtime.Scheme) error{metav1.AddMetaToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			panic(err) // two of one name: a mistake in the code
		}
	}
}
