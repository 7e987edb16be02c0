package pods

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin/rules"
)

// The rules for what pods and their containers may do to the node.

// hostProcesses wants all containers of a pod for Windows to be processes of the host if one is.
func (c *PodCheck) hostProcesses(at *field.Path) {
	var whole *bool
	if s := c.Spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		whole = s.WindowsOptions.HostProcess
	}
	all, of := 0, 0
	eachContainer(c.Spec, at, func(o *corev1.Container, at *field.Path) {
		all++
		own := whole
		if s := o.SecurityContext; s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil {
			own = s.WindowsOptions.HostProcess
		}
		if whole != nil && *own != *whole {
			c.Add(field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *whole)))
		}
		if ptr.Deref(own, false) {
			of++
		}
	})
	if of == 0 {
		return
	}
	c.Refuse(of != all, at, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	c.Refuse(!c.Spec.HostNetwork, at.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers")
}

func (c *PodCheck) hostUsers(at *field.Path) {
	s := c.Spec
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	const with = "when `hostUsers` is false"
	if s.HostNetwork {
		c.Young(rules.UsersNoNetwork, field.Forbidden(at.Child("hostNetwork"), with))
	}
	c.Forbid(s.HostPID, at.Child("HostPID"), with)
	c.Forbid(s.HostIPC, at.Child("HostIPC"), with)
	eachContainer(s, at, func(o *corev1.Container, at *field.Path) {
		if len(o.VolumeDevices) > 0 {
			c.Young(rules.UsersNoDevices, field.Forbidden(at.Child("volumeDevices"), with))
		}
	})
}

var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (c *PodCheck) podSecurity(s *corev1.PodSecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	c.ids(at, "fsGroup", s.FSGroup)
	c.ids(at, "runAsUser", s.RunAsUser)
	c.ids(at, "runAsGroup", s.RunAsGroup)
	for i, group := range s.SupplementalGroups {
		c.Texts(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group))
	}
	for i, sysctl := range s.Sysctls {
		at := at.Child("sysctls").Index(i).Child("name")
		switch {
		case !c.Required(at, sysctl.Name):
		case len(sysctl.Name) > maxSysctl || !sysctlName.MatchString(sysctl.Name):
			c.Add(field.Invalid(at, sysctl.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctl, sysctlName)))
		case slices.ContainsFunc(s.Sysctls[:i], func(other corev1.Sysctl) bool { return other.Name == sysctl.Name }):
			c.Add(field.Duplicate(at, sysctl.Name))
		}
		switch name := strings.ReplaceAll(sysctl.Name, "/", "."); {
		case c.Spec.HostNetwork && strings.HasPrefix(name, "net."):
			c.Young(rules.HostSysctls, field.Invalid(at, sysctl.Name, "may not be specified when 'hostNetwork' is true"))
		case c.Spec.HostIPC && (strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")):
			c.Young(rules.HostSysctls, field.Invalid(at, sysctl.Name, "may not be specified when 'hostIPC' is true"))
		}
	}
	rules.Among(c, at.Child("fsGroupChangePolicy"), s.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	c.seccomp(s.SeccompProfile, at.Child("seccompProfile"))
	c.windowsOptions(s.WindowsOptions, at.Child("windowsOptions"))
	c.appArmor(s.AppArmorProfile, at.Child("appArmorProfile"))
	rules.Among(c, at.Child("supplementalGroupsPolicy"), s.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	rules.Among(c, at.Child("seLinuxChangePolicy"), s.SELinuxChangePolicy, corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
}

// ids checks the number of a user or a group, for which the rule is the same.
func (c *PodCheck) ids(at *field.Path, name string, id *int64) {
	if id != nil {
		c.Texts(at.Child(name), *id, validation.IsValidUserID(*id))
	}
}

func (c *PodCheck) security(s *corev1.SecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	c.ids(at, "runAsUser", s.RunAsUser)
	c.ids(at, "runAsGroup", s.RunAsGroup)
	if p := s.ProcMount; p != nil {
		rules.Among(c, at.Child("procMount"), p, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if (c.Spec.HostUsers == nil || *c.Spec.HostUsers) && *p == corev1.UnmaskedProcMount {
			c.Add(field.Invalid(at.Child("procMount"), *p, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	c.seccomp(s.SeccompProfile, at.Child("seccompProfile"))
	admin := s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN")
	if admin && !ptr.Deref(s.AllowPrivilegeEscalation, false) {
		c.Broken |= rules.NoSysAdmin // where nothing is said of the escalation, too
	}
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		c.Refuse(ptr.Deref(s.Privileged, false), at, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		if admin {
			c.Young(rules.NoSysAdmin, field.Invalid(at, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
		}
	}
	c.windowsOptions(s.WindowsOptions, at.Child("windowsOptions"))
	c.appArmor(s.AppArmorProfile, at.Child("appArmorProfile"))
}

func (c *PodCheck) seccomp(p *corev1.SeccompProfile, at *field.Path) {
	if p == nil {
		return
	}
	if p.Type == "" {
		c.Add(field.Required(at.Child("type"), "type is required when seccompProfile is set"))
	} else {
		rules.Among(c, at.Child("type"), &p.Type, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	}
	at = at.Child("localhostProfile")
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		c.Add(field.Required(at, "must be set when seccomp type is Localhost"))
	case local:
		c.LocalPath(at, *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		c.Add(field.Invalid(at, p, "can only be set when seccomp type is Localhost"))
	}
}

func (c *PodCheck) appArmor(p *corev1.AppArmorProfile, at *field.Path) {
	if p == nil {
		return
	}
	local := at.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		switch name := p.LocalhostProfile; {
		case name == nil || *name == "":
			c.Add(field.Required(local, "must be set when AppArmor type is Localhost"))
		case strings.TrimSpace(*name) != *name:
			c.Add(field.Invalid(local, *name, "must not be padded with whitespace"))
		case len(*name) > maxAppArmorProfile:
			c.Add(field.TooLong(local, "", maxAppArmorProfile))
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		c.Refuse(p.LocalhostProfile != nil, local, p.LocalhostProfile, "can only be set when AppArmor type is Localhost")
	case "":
		c.Add(field.Required(at.Child("type"), "type is required when appArmorProfile is set"))
	default:
		c.Add(field.NotSupported(at.Child("type"), p.Type, []corev1.AppArmorProfileType{corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined}))
	}
}

// os checks that a pod has only what its system knows.
func (c *PodCheck) os(at *field.Path) {
	s := c.Spec
	if s.OS == nil {
		return
	}
	switch {
	case s.OS.Name == "":
		c.Add(field.Required(at.Child("os", "name"), ""))
	case s.OS.Name == corev1.Linux:
		const forbidden = "windows options cannot be set for a linux pod"
		c.Forbid(s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil, at.Child("securityContext", "windowsOptions"), forbidden)
		eachContainer(s, at, func(o *corev1.Container, at *field.Path) {
			c.Forbid(o.SecurityContext != nil && o.SecurityContext.WindowsOptions != nil, at.Child("securityContext", "windowsOptions"), forbidden)
		})
	case s.OS.Name == corev1.Windows:
		c.windows(at)
	default:
		c.Add(field.NotSupported(at.Child("os"), s.OS.Name, []corev1.OSName{corev1.Linux, corev1.Windows}))
	}
}

// windows refuses what only Linux knows.
func (c *PodCheck) windows(at *field.Path) {
	type part struct {
		name string
		set  bool
	}
	refuse := func(at *field.Path, parts ...part) {
		for _, p := range parts {
			c.Forbid(p.set, at.Child(p.name), "cannot be set for a windows pod")
		}
	}
	if s := c.Spec.SecurityContext; s != nil {
		refuse(at.Child("securityContext"), part{"appArmorProfile", s.AppArmorProfile != nil}, part{"seLinuxOptions", s.SELinuxOptions != nil}, part{"seccompProfile", s.SeccompProfile != nil},
			part{"fsGroup", s.FSGroup != nil}, part{"fsGroupChangePolicy", s.FSGroupChangePolicy != nil}, part{"sysctls", len(s.Sysctls) > 0}, part{"runAsUser", s.RunAsUser != nil},
			part{"runAsGroup", s.RunAsGroup != nil}, part{"supplementalGroups", s.SupplementalGroups != nil}, part{"supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil},
			part{"seLinuxChangePolicy", s.SELinuxChangePolicy != nil})
	}
	refuse(at, part{"hostUsers", c.Spec.HostUsers != nil}, part{"hostPID", c.Spec.HostPID}, part{"hostIPC", c.Spec.HostIPC}, part{"shareProcessNamespace", c.Spec.ShareProcessNamespace != nil})
	eachContainer(c.Spec, at, func(o *corev1.Container, at *field.Path) {
		if s := o.SecurityContext; s != nil {
			refuse(at.Child("securityContext"), part{"appArmorProfile", s.AppArmorProfile != nil}, part{"seLinuxOptions", s.SELinuxOptions != nil}, part{"seccompProfile", s.SeccompProfile != nil},
				part{"capabilities", s.Capabilities != nil}, part{"readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil}, part{"privileged", s.Privileged != nil},
				part{"allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil}, part{"procMount", s.ProcMount != nil}, part{"runAsUser", s.RunAsUser != nil}, part{"runAsGroup", s.RunAsGroup != nil})
		}
	})
}

// The rules for what Windows knows of containers.

// The most of what names an account of Windows.
const (
	maxCredentialSpec = 64  // KiB
	maxUserDomain     = 256 // bytes, and fewer are allowed
	maxUserName       = 104 // bytes
)

// What accounts of Windows may be called.
var (
	userControls = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName  = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	domainName   = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	userOfDots   = regexp.MustCompile(`^[\. ]+$`)
	userSigns    = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
)

func (c *PodCheck) windowsOptions(o *corev1.WindowsSecurityContextOptions, at *field.Path) {
	if o == nil {
		return
	}
	if name := o.GMSACredentialSpecName; name != nil {
		c.Subdomain(at.Child("gmsaCredentialSpecName"), *name)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		at := at.Child("gmsaCredentialSpec")
		switch {
		case *spec == "":
			c.Add(field.Invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string"))
		case len(*spec) > maxCredentialSpec<<10:
			c.Add(field.Invalid(at, *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpec)))
		}
	}
	if o.RunAsUserName != nil {
		c.windowsUser(*o.RunAsUserName, at.Child("runAsUserName"))
	}
}

// windowsUser checks the name of a user, who may have a domain: DOMAIN\USER.
func (c *PodCheck) windowsUser(name string, at *field.Path) {
	wrong := func(why string) { c.Add(field.Invalid(at, name, "runAsUserName"+why)) }
	switch {
	case name == "":
		wrong(" cannot be an empty string")
		return
	case userControls.MatchString(name):
		wrong(" cannot contain control characters")
		return
	case strings.Count(name, `\`) > 1:
		wrong(" cannot contain more than one backslash")
		return
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	if len(domain) >= maxUserDomain {
		wrong(fmt.Sprintf("'s Domain length must be under %d characters", maxUserDomain))
	}
	if hasDomain && !netBIOSName.MatchString(domain) && !domainName.MatchString(domain) {
		wrong("'s Domain doesn't match the NetBios nor the DNS format")
	}
	switch {
	case user == "":
		wrong("'s User cannot be empty")
	case len(user) > maxUserName:
		wrong(fmt.Sprintf("'s User length must not be longer than %d characters", maxUserName))
	}
	if userOfDots.MatchString(user) {
		wrong("'s User cannot contain only periods or spaces")
	}
	if userSigns.MatchString(user) {
		wrong(`'s User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
}
