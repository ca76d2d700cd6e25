module "vpc" {
  source = "../.."

  name            = "simple"
  public_subnets  = ["10.0.0.0/24", "10.0.1.0/24"]
  private_subnets = ["10.0.8.0/22", "10.0.12.0/22"]
}
