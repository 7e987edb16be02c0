package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinames "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes/scheme"
)

// drain is how long requests have to end after the context has ended.
const drain = 2 * time.Second

// serve starts upstream's server on the listener, until the context ends. The channel is closed when it has stopped.
func serve(ctx context.Context, listener net.Listener, etcdURL string) (stopped <-chan struct{}, err error) {
	insecure := &server.DeprecatedInsecureServingInfo{Listener: listener, Name: "peer"}
	config, err := configure(insecure, etcdURL)
	if err != nil {
		return nil, err
	}
	completed := config.Complete()
	completed.GenericConfig.EnableDiscovery = true // in a cluster the aggregator serves /apis
	s, err := completed.New(server.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	prepared := s.GenericAPIServer.PrepareRun()
	if err := insecure.Serve(s.GenericAPIServer.Handler, drain, ctx.Done()); err != nil {
		return nil, err
	}
	// Its Run waits for a secure listener, which there isn't.
	stopped, _, err = prepared.NonBlockingRunWithContext(ctx, drain)
	if stopped == nil {
		done := make(chan struct{})
		close(done)
		stopped = done
	}
	return stopped, err
}

// configure is upstream's own configuration without the parts that ask a core API.
func configure(insecure *server.DeprecatedInsecureServingInfo, etcdURL string) (*apiserver.Config, error) {
	o := options.NewCustomResourceDefinitionsServerOptions(io.Discard, io.Discard)
	r := o.RecommendedOptions
	r.SecureServing, r.Authentication, r.Authorization, r.CoreAPI, r.Admission = nil, nil, nil, nil, nil
	r.Features.EnablePriorityAndFairness = false
	r.Etcd.StorageConfig.Transport.ServerList = []string{etcdURL}
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c := server.NewRecommendedConfig(apiserver.Codecs)
	if err := o.ServerRunOptions.ApplyTo(&c.Config); err != nil {
		return nil, err
	}
	c.ExternalAddress = insecure.Listener.Addr().String()
	c.Authentication.Authenticator = server.InsecureSuperuser{}
	c.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	c.AdmissionControl = admission.NewChainHandler() // it's wrapped, so that it can't be nil
	var err error
	if c.LoopbackClientConfig, err = insecure.NewLoopbackClientConfig(); err != nil {
		return nil, err
	}
	if err := r.ApplyTo(c); err != nil {
		return nil, err
	}
	if err := o.APIEnablement.ApplyTo(&c.Config, apiserver.DefaultAPIResourceConfigSource(), apiserver.Scheme); err != nil {
		return nil, err
	}
	types := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generated.GetOpenAPIDefinitions)
	names := openapinames.NewDefinitionNamer(apiserver.Scheme, scheme.Scheme)
	c.OpenAPIConfig = server.DefaultOpenAPIConfig(types, names)
	c.OpenAPIV3Config = server.DefaultOpenAPIV3Config(types, names)
	return &apiserver.Config{GenericConfig: c, ExtraConfig: apiserver.ExtraConfig{
		CRDRESTOptionsGetter: options.NewCRDRESTOptionsGetter(*r.Etcd, c.ResourceTransformers, c.StorageObjectCountTracker),
		MasterCount:          1,
		ServiceResolver:      noServices{},
		AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.LoopbackClientConfig, noop.NewTracerProvider()),
	}}, nil
}

// noServices is a cluster without services.
type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %s/%s: this server has none", namespace, name)
}
