package pods

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for probes and hooks, and for when a container is restarted.

// restart checks when a container is restarted.
func (c *PodCheck) restart(o *corev1.Container, at *field.Path) {
	c.Lack(o.RestartPolicy == nil && len(o.RestartPolicyRules) > 0, at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
	rules.Among(c, at.Child("restartPolicy"), o.RestartPolicy, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	if n := len(o.RestartPolicyRules); n > maxRestartRules {
		c.Add(field.TooMany(at.Child("restartPolicyRules"), n, maxRestartRules))
	}
	for i, rule := range o.RestartPolicyRules {
		at := at.Child("restartPolicyRules").Index(i)
		rules.Among(c, at.Child("action"), &rule.Action, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		at = at.Child("exitCodes")
		if rule.ExitCodes == nil {
			c.Add(field.Required(at, "must be specified"))
			continue
		}
		rules.Among(c, at.Child("operator"), &rule.ExitCodes.Operator, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			c.Add(field.TooMany(at.Child("values"), n, maxExitCodes))
		}
	}
}

func (c *PodCheck) probes(o *corev1.Container, at *field.Path) {
	c.probe(o.LivenessProbe, at.Child("livenessProbe"))
	if p := o.LivenessProbe; p != nil && p.SuccessThreshold != 1 {
		c.Add(field.Invalid(at.Child("livenessProbe", "successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	c.probe(o.ReadinessProbe, at.Child("readinessProbe"))
	if p := o.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		c.Add(field.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	c.probe(o.StartupProbe, at.Child("startupProbe"))
	if p := o.StartupProbe; p != nil && p.SuccessThreshold != 1 {
		c.Add(field.Invalid(at.Child("startupProbe", "successThreshold"), p.SuccessThreshold, "must be 1"))
	}
}

func (c *PodCheck) probe(p *corev1.Probe, at *field.Path) {
	if p == nil {
		return
	}
	c.handler(handler{exec: p.Exec, httpGet: p.HTTPGet, tcpSocket: p.TCPSocket, grpc: p.GRPC}, at)
	c.Add(rules.NotNegative(at.Child("initialDelaySeconds"), &p.InitialDelaySeconds)...)
	c.Add(rules.NotNegative(at.Child("timeoutSeconds"), &p.TimeoutSeconds)...)
	c.Add(rules.NotNegative(at.Child("periodSeconds"), &p.PeriodSeconds)...)
	c.Add(rules.NotNegative(at.Child("successThreshold"), &p.SuccessThreshold)...)
	c.Add(rules.NotNegative(at.Child("failureThreshold"), &p.FailureThreshold)...)
	if n := p.TerminationGracePeriodSeconds; n != nil && *n <= 0 {
		c.Add(field.Invalid(at.Child("terminationGracePeriodSeconds"), *n, "must be greater than 0"))
	}
}

func (c *PodCheck) lifecycle(l *corev1.Lifecycle, at *field.Path) {
	if l == nil {
		return
	}
	if h := l.PostStart; h != nil {
		c.handler(handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep}, at.Child("postStart"))
	}
	if h := l.PreStop; h != nil {
		c.handler(handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep}, at.Child("preStop"))
	}
	if l.StopSignal == nil {
		return
	}
	at = at.Child("stopSignal")
	switch os := c.Spec.OS; {
	case os == nil:
		c.Add(field.Forbidden(at, "may not be set for containers with empty `spec.os.name`"))
	case os.Name == corev1.Windows:
		rules.Among(c, at, l.StopSignal, corev1.SIGKILL, corev1.SIGTERM)
	case os.Name == corev1.Linux:
		rules.Among(c, at, l.StopSignal, linuxSignals...)
	}
}

// linuxSignals are all that a container of Linux can be ended by, in alphabetic order.
var linuxSignals = func() []corev1.Signal {
	all := []corev1.Signal{
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF",
		"SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM",
		"SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX",
	}
	const fromMin, fromMax = 15, 14 // how many signals are named after the least and after the greatest of real time
	for i := 1; i <= fromMin; i++ {
		all = append(all, corev1.Signal("SIGRTMIN+"+strconv.Itoa(i)))
	}
	for i := 1; i <= fromMax; i++ {
		all = append(all, corev1.Signal("SIGRTMAX-"+strconv.Itoa(i)))
	}
	slices.Sort(all)
	return all
}()

// handler is what probes and hooks do; one of its members.
type handler struct {
	exec      *corev1.ExecAction
	httpGet   *corev1.HTTPGetAction
	tcpSocket *corev1.TCPSocketAction
	grpc      *corev1.GRPCAction
	sleep     *corev1.SleepAction
}

func (c *PodCheck) handler(h handler, at *field.Path) {
	one := false
	is := func(name string, set bool, check func(at *field.Path)) {
		switch {
		case set && one:
			c.Add(field.Forbidden(at.Child(name), "may not specify more than 1 handler type"))
		case set:
			one = true
			check(at.Child(name))
		}
	}
	is("exec", h.exec != nil, func(at *field.Path) {
		c.Lack(len(h.exec.Command) == 0, at.Child("command"), "")
	})
	is("httpGet", h.httpGet != nil, func(at *field.Path) {
		c.Required(at.Child("path"), h.httpGet.Path)
		c.Add(rules.ValidatePortOrName(h.httpGet.Port, at.Child("port"))...)
		rules.Among(c, at.Child("scheme"), &h.httpGet.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for _, header := range h.httpGet.HTTPHeaders {
			c.Texts(at.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))
		}
	})
	is("tcpSocket", h.tcpSocket != nil, func(at *field.Path) { c.Add(rules.ValidatePortOrName(h.tcpSocket.Port, at.Child("port"))...) })
	is("grpc", h.grpc != nil, func(at *field.Path) {
		c.Texts(at.Child("port"), int(h.grpc.Port), validation.IsValidPortNum(int(h.grpc.Port)))
	})
	is("sleep", h.sleep != nil, func(at *field.Path) {
		if grace := c.Spec.TerminationGracePeriodSeconds; grace != nil && (h.sleep.Seconds < 0 || h.sleep.Seconds > *grace) {
			c.Add(field.Invalid(at, h.sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)))
		}
	})
	c.Lack(!one, at, "must specify a handler type")
}
