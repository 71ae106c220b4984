package check

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// documents are those of a file.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile("../" + file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(text, []byte("\n---\n"))
}

// decode refuses fields that there are not.
func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// The pods find each other by the service, and weft is told as many ranks as there are pods.
func TestIndexedJob(t *testing.T) {
	all := documents(t, "indexed-job.yaml")
	equal(t, "documents", len(all), 2)
	var service core.Service
	var job batch.Job
	decode(t, all[0], &service)
	decode(t, all[1], &job)
	equal(t, "kind", service.APIVersion+" "+service.Kind, "v1 Service")
	equal(t, "kind", job.APIVersion+" "+job.Kind, "batch/v1 Job")
	pod := job.Spec.Template.Spec
	equal(t, "cluster address", service.Spec.ClusterIP, core.ClusterIPNone)
	equal(t, "names before pods are ready", service.Spec.PublishNotReadyAddresses, true)
	equal(t, "selector", service.Spec.Selector[batch.JobNameLabel[len("batch.kubernetes.io/"):]], job.Name)
	equal(t, "subdomain", pod.Subdomain, service.Name)
	equal(t, "mode", *job.Spec.CompletionMode, batch.IndexedCompletion)
	equal(t, "parallelism", *job.Spec.Parallelism, *job.Spec.Completions)
	env := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		env[v.Name] = v.Value
	}
	equal(t, "WEFT_SIZE", env["WEFT_SIZE"], strconv.Itoa(int(*job.Spec.Completions)))
	mount, volume := pod.Containers[0].VolumeMounts[0], pod.Volumes[0]
	equal(t, "volume", mount.Name, volume.Name)
	equal(t, "secret's file", env["WEFT_SECRET_FILE"], mount.MountPath+"/secret")
	equal(t, "secret's mode", *volume.Secret.DefaultMode, 0o440)
	equal(t, "secret's group", *pod.SecurityContext.FSGroup, *pod.SecurityContext.RunAsGroup)
	equal(t, "rights in the cluster's interface", *pod.AutomountServiceAccountToken, false)
}

// mpiJob is kubeflow.org/v2beta1 MPIJob, as far as it is used: the operator's module cannot be had from Go's
// module proxy. The fields, and the values below, are those of the published definition of July 2026
// (manifests/base/kubeflow.org_mpijobs.yaml) and of the operator's validation.
type mpiJob struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`
	Spec            struct {
		SlotsPerWorker    *int32 `json:"slotsPerWorker,omitempty"`
		MPIImplementation string `json:"mpiImplementation,omitempty"`
		RunPolicy         struct {
			CleanPodPolicy string `json:"cleanPodPolicy,omitempty"`
			BackoffLimit   *int32 `json:"backoffLimit,omitempty"`
		} `json:"runPolicy,omitempty"`
		Replicas map[string]struct {
			Replicas      *int32               `json:"replicas,omitempty"`
			RestartPolicy string               `json:"restartPolicy,omitempty"`
			Template      core.PodTemplateSpec `json:"template,omitempty"`
		} `json:"mpiReplicaSpecs"`
	} `json:"spec,omitempty"`
}

// oneOf checks a value that is one of a list.
func oneOf(t *testing.T, what, got string, list ...string) {
	t.Helper()
	if !slices.Contains(list, got) {
		t.Errorf("%s: %q, and only %q are allowed", what, got, list)
	}
}

func TestMPIJob(t *testing.T) {
	all := documents(t, "mpijob.yaml")
	equal(t, "documents", len(all), 1)
	var job mpiJob
	decode(t, all[0], &job)
	equal(t, "kind", job.APIVersion+" "+job.Kind, "kubeflow.org/v2beta1 MPIJob")
	equal(t, "MPI", job.Spec.MPIImplementation, "MPICH") // or HYDRA_HOST_FILE would not be set
	oneOf(t, "what becomes of the pods", job.Spec.RunPolicy.CleanPodPolicy, "None", "Running", "All")
	for role, replica := range job.Spec.Replicas {
		oneOf(t, "role", role, "Launcher", "Worker")
		oneOf(t, role, replica.RestartPolicy, "Never", "OnFailure")
		equal(t, role+"'s containers", len(replica.Template.Spec.Containers), 1)
	}
	launcher, worker := job.Spec.Replicas["Launcher"], job.Spec.Replicas["Worker"]
	equal(t, "roles", len(job.Spec.Replicas), 2)
	equal(t, "launchers", *launcher.Replicas, 1)
	last := job.Name + "-worker-" + strconv.Itoa(int(*worker.Replicas)-1)
	if wrong := validation.IsDNS1035Label(last); wrong != nil {
		t.Errorf("a worker's name would be %q: %s", last, wrong)
	}
	ranks := strconv.Itoa(int(*worker.Replicas * *job.Spec.SlotsPerWorker))
	equal(t, "ranks", launcher.Template.Spec.Containers[0].Command[3], ranks)
}

// What is wrong in a file is found.
func TestWrongFieldIsRefused(t *testing.T) {
	var job batch.Job
	if yaml.UnmarshalStrict([]byte("spec: {completionsMode: Indexed}"), &job) == nil {
		t.Error("a field that there is not is taken")
	}
}
