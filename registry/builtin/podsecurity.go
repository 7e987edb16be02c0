package builtin

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules for what pods and their containers may do to the node.

// hostProcesses wants all containers of a pod for Windows to be processes of the host if one is.
func (c *podCheck) hostProcesses(at *field.Path) {
	var whole *bool
	if s := c.spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		whole = s.WindowsOptions.HostProcess
	}
	all, of := 0, 0
	eachContainer(c.spec, at, func(o *corev1.Container, at *field.Path) {
		all++
		own := whole
		if s := o.SecurityContext; s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil {
			own = s.WindowsOptions.HostProcess
		}
		if whole != nil && *own != *whole {
			c.add(field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *whole)))
		}
		if isTrue(own) {
			of++
		}
	})
	if of == 0 {
		return
	}
	if of != all {
		c.add(field.Invalid(at, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if !c.spec.HostNetwork {
		c.add(field.Invalid(at.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
}

func (c *podCheck) hostUsers(at *field.Path) {
	s := c.spec
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	const with = "when `hostUsers` is false"
	if s.HostNetwork {
		c.young(usersNoNetwork, field.Forbidden(at.Child("hostNetwork"), with))
	}
	if s.HostPID {
		c.add(field.Forbidden(at.Child("HostPID"), with))
	}
	if s.HostIPC {
		c.add(field.Forbidden(at.Child("HostIPC"), with))
	}
	eachContainer(s, at, func(o *corev1.Container, at *field.Path) {
		if len(o.VolumeDevices) > 0 {
			c.young(usersNoDevices, field.Forbidden(at.Child("volumeDevices"), with))
		}
	})
}

var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (c *podCheck) podSecurity(s *corev1.PodSecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	c.ids(at, "fsGroup", s.FSGroup)
	c.ids(at, "runAsUser", s.RunAsUser)
	c.ids(at, "runAsGroup", s.RunAsGroup)
	for i, group := range s.SupplementalGroups {
		c.texts(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))
	}
	for i, sysctl := range s.Sysctls {
		at := at.Child("sysctls").Index(i).Child("name")
		switch {
		case !c.required(at, sysctl.Name):
		case len(sysctl.Name) > maxSysctl || !sysctlName.MatchString(sysctl.Name):
			c.add(field.Invalid(at, sysctl.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctl, sysctlName)))
		case slices.ContainsFunc(s.Sysctls[:i], func(other corev1.Sysctl) bool { return other.Name == sysctl.Name }):
			c.add(field.Duplicate(at, sysctl.Name))
		}
		switch name := strings.ReplaceAll(sysctl.Name, "/", "."); {
		case c.spec.HostNetwork && strings.HasPrefix(name, "net."):
			c.young(hostSysctls, field.Invalid(at, sysctl.Name, "may not be specified when 'hostNetwork' is true"))
		case c.spec.HostIPC && (strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")):
			c.young(hostSysctls, field.Invalid(at, sysctl.Name, "may not be specified when 'hostIPC' is true"))
		}
	}
	among(c, at.Child("fsGroupChangePolicy"), s.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	c.seccomp(s.SeccompProfile, at.Child("seccompProfile"))
	c.windowsOptions(s.WindowsOptions, at.Child("windowsOptions"))
	c.appArmor(s.AppArmorProfile, at.Child("appArmorProfile"))
	among(c, at.Child("supplementalGroupsPolicy"), s.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	among(c, at.Child("seLinuxChangePolicy"), s.SELinuxChangePolicy, corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
}

// ids checks the number of a user or a group, for which the rule is the same.
func (c *podCheck) ids(at *field.Path, name string, id *int64) {
	if id != nil {
		c.texts(at.Child(name), *id, validation.IsValidUserID(*id))
	}
}

func (c *podCheck) security(s *corev1.SecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	c.ids(at, "runAsUser", s.RunAsUser)
	c.ids(at, "runAsGroup", s.RunAsGroup)
	if p := s.ProcMount; p != nil {
		among(c, at.Child("procMount"), p, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if (c.spec.HostUsers == nil || *c.spec.HostUsers) && *p == corev1.UnmaskedProcMount {
			c.add(field.Invalid(at.Child("procMount"), *p, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	c.seccomp(s.SeccompProfile, at.Child("seccompProfile"))
	admin := s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN")
	if admin && !isTrue(s.AllowPrivilegeEscalation) {
		c.broken |= noSysAdmin // where nothing is said of the escalation, too
	}
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		if isTrue(s.Privileged) {
			c.add(field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if admin {
			c.young(noSysAdmin, field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
		}
	}
	c.windowsOptions(s.WindowsOptions, at.Child("windowsOptions"))
	c.appArmor(s.AppArmorProfile, at.Child("appArmorProfile"))
}

func (c *podCheck) seccomp(p *corev1.SeccompProfile, at *field.Path) {
	if p == nil {
		return
	}
	if p.Type == "" {
		c.add(field.Required(at.Child("type"), "type is required when seccompProfile is set"))
	} else {
		among(c, at.Child("type"), &p.Type, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at = at.Child("localhostProfile")
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		c.add(field.Required(at, "must be set when seccomp type is Localhost"))
	case local:
		c.localPath(at, *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		c.add(field.Invalid(at, p, "can only be set when seccomp type is Localhost"))
	}
}

func (c *podCheck) appArmor(p *corev1.AppArmorProfile, at *field.Path) {
	if p == nil {
		return
	}
	local := at.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch name := p.LocalhostProfile; {
		case name == nil || *name == "":
			c.add(field.Required(local, "must be set when AppArmor type is Localhost"))
		case strings.TrimSpace(*name) != *name:
			c.add(field.Invalid(local, *name, "must not be padded with whitespace"))
		case len(*name) > maxAppArmorProfile:
			c.add(field.TooLong(local, "", maxAppArmorProfile))
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			c.add(field.Invalid(local, p.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
		}
	case "":
		c.add(field.Required(at.Child("type"), "type is required when appArmorProfile is set"))
	default:
		c.add(field.NotSupported(at.Child("type"), p.Type, []corev1.AppArmorProfileType{corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined}))
	}
}

// os checks that a pod has only what its system knows.
func (c *podCheck) os(at *field.Path) {
	s := c.spec
	if s.OS == nil {
		return
	}
	switch {
	case s.OS.Name == "":
		c.add(field.Required(at.Child("os", "name"), ""))
	case s.OS.Name == corev1.Linux:
		const forbidden = "windows options cannot be set for a linux pod"
		if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
			c.add(field.Forbidden(at.Child("securityContext", "windowsOptions"), forbidden))
		}
		eachContainer(s, at, func(o *corev1.Container, at *field.Path) {
			if o.SecurityContext != nil && o.SecurityContext.WindowsOptions != nil {
				c.add(field.Forbidden(at.Child("securityContext", "windowsOptions"), forbidden))
			}
		})
	case s.OS.Name == corev1.Windows:
		c.windows(at)
	default:
		c.add(field.NotSupported(at.Child("os"), s.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows}))
	}
}

// windows refuses what only Linux knows.
func (c *podCheck) windows(at *field.Path) {
	type part struct {
		name string
		set  bool
	}
	refuse := func(at *field.Path, parts ...part) {
		for _, p := range parts {
			if p.set {
				c.add(field.Forbidden(at.Child(p.name), "cannot be set for a windows pod"))
			}
		}
	}
	if s := c.spec.SecurityContext; s != nil {
		refuse(at.Child("securityContext"), part{"appArmorProfile", s.AppArmorProfile != nil}, part{"seLinuxOptions", s.SELinuxOptions != nil}, part{"seccompProfile", s.SeccompProfile != nil},
			part{"fsGroup", s.FSGroup != nil}, part{"fsGroupChangePolicy", s.FSGroupChangePolicy != nil}, part{"sysctls", len(s.Sysctls) > 0}, part{"runAsUser", s.RunAsUser != nil},
			part{"runAsGroup", s.RunAsGroup != nil}, part{"supplementalGroups", s.SupplementalGroups != nil}, part{"supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil},
			part{"seLinuxChangePolicy", s.SELinuxChangePolicy != nil})
	}
	refuse(at, part{"hostUsers", c.spec.HostUsers != nil}, part{"hostPID", c.spec.HostPID}, part{"hostIPC", c.spec.HostIPC}, part{"shareProcessNamespace", c.spec.ShareProcessNamespace != nil})
	eachContainer(c.spec, at, func(o *corev1.Container, at *field.Path) {
		if s := o.SecurityContext; s != nil {
			refuse(at.Child("securityContext"), part{"appArmorProfile", s.AppArmorProfile != nil}, part{"seLinuxOptions", s.SELinuxOptions != nil}, part{"seccompProfile", s.SeccompProfile != nil},
				part{"capabilities", s.Capabilities != nil}, part{"readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil}, part{"privileged", s.Privileged != nil},
				part{"allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil}, part{"procMount", s.ProcMount != nil}, part{"runAsUser", s.RunAsUser != nil}, part{"runAsGroup", s.RunAsGroup != nil})
		}
	})
}
