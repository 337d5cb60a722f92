package hosts

// Floor are the names that no policy allows, with all their subdomains: the
// metadata services of the clouds, and suffixes that mean something only inside
// some network.
var Floor = newList([]Row{
	{"metadata", "cloud metadata", docGoogle},
	{"metadata.google.internal", "cloud metadata (GCP)", docGoogle},
	{"metadata.goog", "cloud metadata (GCP)", docGoogle},
	{"instance-data", "cloud metadata (AWS)", "https://serverfault.com/questions/436086/how-to-prevent-firewall-calls-to-aws-ec2-instance-metadata-api"},
	{"metadata.tencentyun.com", "cloud metadata (Tencent)", "https://www.tencentcloud.com/document/product/213/4934"},
	{"api.metadata.cloud.ibm.com", "cloud metadata (IBM)", "https://cloud.ibm.com/apidocs/vpc-metadata"},
	{"metadata.azure.com", "cloud metadata (Azure)", "https://learn.microsoft.com/en-us/azure/virtual-machines/instance-metadata-service"},
	{"metadata.exoscale.com", "cloud metadata (Exoscale)", "https://community.exoscale.com/product/compute/instances/how-to/cloud-init-user-data/"},
	{"metadata.platformequinix.com", "cloud metadata (Equinix)", "https://deploy.equinix.com/developers/docs/metal/server-metadata/metadata/"},
	{"metadata.packet.net", "cloud metadata (Packet)", "https://github.com/packethost/packngo"},
	{"metadata.digitalocean.com", "cloud metadata (DigitalOcean)", hearsay},
	{"metadata.oraclecloud.com", "cloud metadata (OCI)", hearsay},
	{"rancher-metadata", "platform metadata (Rancher)", "https://rancher.com/docs/rancher/v1.6/en/rancher-services/metadata-service/"},

	// Names that container platforms give to the host or to themselves.
	{"kubernetes.default", "Kubernetes API", "https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"},
	{"host.docker.internal", "container host", docDocker},
	{"gateway.docker.internal", "container host", docDocker},
	{"host.containers.internal", "container host", "https://docs.podman.io/en/latest/markdown/podman-run.1.html"},
	{"kubernetes.docker.internal", "container host", docDocker},

	// Suffixes that public DNS does not serve.
	{"internal", "private-use suffix", "https://www.icann.org/en/board-activities-and-meetings/materials/approved-resolutions-special-meeting-of-the-icann-board-29-07-2024-en"},
	{"local", "multicast DNS suffix", "https://www.rfc-editor.org/rfc/rfc6762"},
	{"localhost", "loopback suffix", "https://www.rfc-editor.org/rfc/rfc6761#section-6.3"},
	{"localdomain", "private-use suffix", "https://www.freedesktop.org/software/systemd/man/latest/systemd-resolved.service.html"},
	{"lan", "private-use suffix", "https://www.rfc-editor.org/rfc/rfc6762#appendix-G"},
	{"home.arpa", "home network suffix", "https://www.rfc-editor.org/rfc/rfc8375"},
	{"svc", "cluster suffix", docCluster},
	{"cluster.local", "cluster suffix", docCluster},
	{"arpa", "infrastructure suffix", "https://www.rfc-editor.org/rfc/rfc3172"},
	{"test", "reserved suffix", "https://www.rfc-editor.org/rfc/rfc6761#section-6.2"},
	{"invalid", "reserved suffix", "https://www.rfc-editor.org/rfc/rfc6761#section-6.4"},
	{"onion", "suffix of another name system", "https://www.rfc-editor.org/rfc/rfc7686"},
})

const (
	docGoogle  = "https://docs.cloud.google.com/compute/docs/metadata/querying-metadata"
	docDocker  = "https://docs.docker.com/desktop/features/networking/"
	docCluster = "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/"
)
